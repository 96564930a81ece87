"""What the mentor learns from: clean examples with a right label, and again with a wrong one."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core import ModelView, batch_size, rows
from .contract import Problem


def labelled_twice(problem: Problem) -> Tensor:
    """[2, M] the clean targets, and below them wrong ones, in the dtype that the criterion takes."""
    _, targets = problem.clean
    away = torch.randint(
        1, problem.classes, targets.shape, generator=problem.generator("mentor labels")
    )
    wrong = (targets.long() + away.to(targets.device)) % problem.classes
    return torch.stack([targets, wrong.to(targets.dtype)])


def losses_of_both(problem: Problem, model: nn.Module, targets: Tensor, *, size: int) -> Tensor:
    """[2 M] the losses of the clean set under the right, then under the wrong `targets` [2, M].

    Computed in pieces of at most `size` examples. The model and the generators stay as they were.
    """
    inputs, _ = problem.clean
    m = batch_size(inputs, which="clean")
    pieces = -(-m // size)  # of nearly equal size: batch norm fails on a batch of one
    edges = [m * i // pieces for i in range(pieces + 1)]
    losses = []
    with torch.no_grad(), ModelView(model).isolated(own_stream=True):
        for start, stop in pairwise(edges):
            outputs = model(rows(inputs, start, stop))
            losses.append([problem.criterion(outputs, y[start:stop]) for y in targets])
    return torch.cat([torch.cat(parts) for parts in zip(*losses, strict=True)]).float()
