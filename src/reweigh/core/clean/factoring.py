"""The clean gradient from the graph of the clean pass, with factors in place of large products.

As in ghost: one backward to the outputs of the layers, read off the graph. Linear layers then keep
their two factors where those are smaller than the product (factored.py); all else is multiplied out.
Whether the examples are coupled does not matter here, since their mean is all that is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..backends.base import Memory
from ..backends.ghost.from_graph import read
from ..backends.proof import due, tolerance
from ..model.autograd_graph import unhooked
from ..model.device import in_type
from ..model.parameters import dot
from ..ops import Layer, Linear
from .low_rank import Factors, Values

USES = "factored"  # in memory, by m: how often it has been done; None where it does not pay
_WIDE = (torch.float32, torch.float64)


def factored_gradient(
    mean_loss: Tensor, m: int, theta: Sequence[nn.Parameter], memory: Memory
) -> Values | None:
    """The gradient of the mean loss of m examples, with factors; None, and the graph left as it is,
    where no layer would gain. Compared with autograd's own at the first use, and when due."""
    uses = memory.get((USES, m), 0)
    if uses is None:
        return None
    reading = read(mean_loss, theta)
    contacts = [] if reading is None else reading.contacts
    layers = [contact.layer for contact in contacts]
    if not paying(layers, theta):
        memory[USES, m] = None
        return None
    memory[USES, m] = uses + 1
    look = due(uses + 1)
    found = torch.autograd.grad(
        mean_loss,
        [contact.edge for contact in contacts if contact.edge is not None],
        retain_graph=look,
        allow_unused=True,
    )
    values = collected(layers, found, theta)
    if look and not agrees(values, mean_loss, theta):
        memory[USES, m] = None
        return None
    return values


def paying(layers: Sequence[Layer], theta: Sequence[nn.Parameter], share: float = 1.0) -> set[int]:
    """Which layers, by position: linear ones that no other shares a parameter with, and whose factors
    are smaller than their product, of that share of their rows."""
    places = [use.place for layer in layers for use in layer.uses if use]
    alone = len(places) == len(set(places))
    found: set[int] = set()
    for i, layer in enumerate(layers):
        if not isinstance(layer, Linear) or layer.uses[1] is None:
            continue
        if not alone and any(places.count(use.place) > 1 for use in layer.uses if use):
            continue
        (x,), (fan_out, fan_in) = layer.inputs, theta[layer.uses[1].place].shape
        if x.dtype in _WIDE and share * x.shape[0] * (fan_in + fan_out) < fan_in * fan_out:
            found.add(i)
    return found


def collected(
    layers: Sequence[Layer],
    found: Sequence[Tensor | None],
    theta: Sequence[nn.Parameter],
    share: float = 1.0,
) -> Values:
    """The gradient that those at the outputs of all layers amount to, with factors where they pay."""
    kept = paying(layers, theta, share)
    values: list[Tensor | Factors | None] = [None] * len(theta)
    with torch.no_grad():
        for i, (layer, g) in enumerate(zip(layers, found, strict=True)):
            if g is None:
                continue
            if i in kept:
                shift, turn = layer.uses
                assert turn is not None
                values[turn.place] = Factors(layer.inputs[0], g, turn.transposed)
                if shift is not None:
                    values[shift.place] = Factors(None, g, transposed=False)
                continue
            for use, part in zip(layer.uses, layer.gradients(g), strict=True):
                if use is not None and part is not None:
                    before, more = values[use.place], in_type(part, theta[use.place].dtype)
                    assert not isinstance(before, Factors)
                    values[use.place] = more if before is None else before + more
        whole = [
            torch.zeros_like(p) if v is None else v for v, p in zip(values, theta, strict=True)
        ]
    return Values(whole)


def agrees(values: Values, mean_loss: Tensor, theta: Sequence[nn.Parameter]) -> bool:
    """Whether autograd finds the same, leaving the graph and the factors as they are."""
    with unhooked(theta):
        truth = torch.autograd.grad(
            mean_loss, theta, retain_graph=True, materialize_grads=True, allow_unused=True
        )
    close = max(tolerance(p.dtype) for p in theta)
    size = dot(truth, truth).sqrt()
    for i, right in enumerate(truth):
        factors = values.factors(i)
        mine = values[i] if factors is None else factors.product()
        # A gradient that is zero but for rounding (a bias that a norm takes away) is no evidence.
        bound = torch.maximum(torch.linalg.vector_norm(right), size * 1e-3)
        if not torch.linalg.vector_norm(right - mine) <= close * bound:
            return False
    return True
