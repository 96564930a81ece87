"""The clean gradient from the graph of the clean pass, with factors in place of large products.

As in ghost: one backward to the outputs of the layers, read off the graph. Linear layers then keep
their two factors where those are smaller than the product (factored.py); all else is multiplied out.
Whether the examples are coupled does not matter here, since their mean is all that is differentiated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .alignment import Memory
from .factored import Factors, Values
from .graph import unhooked
from .layer_rules import Linear
from .parameters import dot
from .recorded import RecordedContact, read
from .tolerance import due, tolerance

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
    if not paying_contacts(contacts):
        memory[USES, m] = None
        return None
    memory[USES, m] = uses + 1
    look = due(uses + 1)
    found = torch.autograd.grad(
        mean_loss, [contact.edge for contact in contacts], retain_graph=look, allow_unused=True
    )
    values = collected(contacts, found, theta)
    if look and not agrees(values, mean_loss, theta):
        memory[USES, m] = None
        return None
    return values


def paying_contacts(contacts: Sequence[RecordedContact], share: float = 1.0) -> set[int]:
    """Which contacts, by position: linear layers that no other shares a parameter with, and whose
    factors are smaller than their product, of that share of their rows."""
    shared = Counter(use.place for contact in contacts for use in contact.layer.uses if use)
    return {
        i
        for i, contact in enumerate(contacts)
        if isinstance(contact.layer, Linear)
        and contact.layer.uses[1] is not None
        and all(shared[use.place] == 1 for use in contact.layer.uses if use)
        and _smaller(contact.layer.inputs[0], contact.shape, share)
    }


def _smaller(inputs: Tensor, shape: Sequence[int], share: float) -> bool:
    rows, fan_in, fan_out = *inputs.shape, shape[1]
    return inputs.dtype in _WIDE and share * rows * (fan_in + fan_out) < fan_in * fan_out


def collected(
    contacts: Sequence[RecordedContact],
    found: Sequence[Tensor | None],
    theta: Sequence[nn.Parameter],
) -> Values:
    """The gradient that those at the outputs of all contacts amount to, with factors where they pay."""
    paying = paying_contacts(contacts)
    factors: dict[int, Factors] = {}
    dense: dict[int, Tensor] = {}
    with torch.no_grad():
        for i, (contact, g) in enumerate(zip(contacts, found, strict=True)):
            if g is None:
                continue
            if i in paying:
                shift, turn = contact.layer.uses
                assert turn is not None
                factors[turn.place] = Factors(contact.layer.inputs[0], g, turn.transposed)
                if shift is not None:
                    factors[shift.place] = Factors(None, g, transposed=False)
                continue
            for use, part in zip(contact.layer.uses, contact.gradients(g), strict=True):
                if use is not None and part is not None:
                    before = dense.get(use.place)
                    dense[use.place] = part if before is None else before + part
        for i, p in enumerate(theta):
            if i not in factors and i not in dense:
                dense[i] = torch.zeros_like(p)
    return Values([factors.get(i) or dense[i] for i in range(len(theta))])


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
