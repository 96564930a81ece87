"""The definition that every back-end is held against: a Python loop over examples.

    score_i = < grad f_i(theta), grad G(theta) >

Nothing here is shared with the library but the documented contract on random numbers: the train
pass draws what a plain forward would draw, the clean pass draws from a stream seeded by the next
random 62-bit number, and leaves the state as it found it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def clean_gradient(model: nn.Module, loss: Any, clean: Any) -> list[Tensor]:
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    state = torch.get_rng_state()
    torch.manual_seed(int(torch.randint(2**62, ())))
    trainable = [p for p in model.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(loss(model, clean).mean(), trainable, allow_unused=True)
    torch.set_rng_state(state)
    with torch.no_grad():
        for name, b in model.named_buffers():
            b.copy_(buffers[name])
    return [
        torch.zeros_like(p) if g is None else g for p, g in zip(trainable, gradient, strict=True)
    ]


def scores(model: nn.Module, loss: Any, train: Any, clean: Any) -> Tensor:
    """Brute force; leaves the state of a plain forward on the train batch."""
    direction = clean_gradient(model, loss, clean)
    trainable = [p for p in model.parameters() if p.requires_grad]
    values = []
    for f in loss(model, train).unbind():
        g = torch.autograd.grad(f, trainable, retain_graph=True, allow_unused=True)
        terms = [(a * v).double().sum() for a, v in zip(g, direction, strict=True) if a is not None]
        values.append(torch.stack(terms).sum())
    return torch.stack(values)


def weighted_gradient(model: nn.Module, loss: Any, train: Any, weights: Tensor) -> list[Any]:
    """grad sum_i w_i f_i by a plain backward, None for parameters the loss does not touch."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    total = (weights * loss(model, train)).sum()
    return list(torch.autograd.grad(total, trainable, allow_unused=True))
