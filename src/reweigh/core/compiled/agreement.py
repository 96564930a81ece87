"""Compiled numbers against those of the eager step: nothing that a compiler makes is believed unseen.

Losses, scores, the clean loss, the gradient and the buffers that the forward writes must be the same up
to rounding. (Weights follow from scores, by a rule that is continuous.)

A compiler sums in another order. In a deep network that changes which units are on, and the gradient of
a parameter by more than the usual tolerance: in a ResNet-32 by .005 in float32. How far rounding goes in a
model is measured where the usual tolerance fails: the eager gradient, once more, with the last bits of
every parameter changed. Which units switch is a matter of chance, and a sum of many terms is off by more than
its last bit. So if one bit does not explain the difference, a few bits are tried (`NUDGES`), and the largest
change counts, of any parameter's gradient for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..rounding import explained, tolerance

NUDGES = (1, 4, 16)  # last bits of every parameter
_NEGLIGIBLE = 1e-3  # of the whole gradient: below that, one parameter's may be rounding alone
Named = Mapping[str, Tensor]


def difference(
    mine: Named,
    right: Named,
    gradient: Sequence[Tensor],
    truth: Sequence[Tensor],
    kind: torch.dtype,
    nudged: Callable[[int], tuple[Named, Sequence[Tensor]]],
) -> str | None:
    """What disagrees, in words; None if nothing does. kind: the coarsest precision that takes part.
    nudged(k): what is right after a change of every parameter by k last bits."""
    values = [mine[name] for name in right]
    if any(x.shape != y.shape for x, y in zip(values, right.values(), strict=True)):
        return "its results have other shapes than those of the eager step"
    close = tolerance(kind)
    errors = _errors(values, gradient, right, truth)
    if bool((errors <= close).all()):
        return None
    allowed = torch.full_like(errors, close)
    for bits in NUDGES:
        again, moved = nudged(bits)
        rounding = _errors([again[name] for name in right], moved, right, truth)
        if truth:
            rounding[len(right) :] = rounding[len(right) :].max()
        allowed = allowed.maximum(errors.new_tensor([explained(r) for r in rounding.tolist()]))
        if bool((errors <= allowed).all()):
            return None
    worst = int((errors / allowed).argmax())
    name = [*right, *["gradient"] * len(truth)][worst]
    return (
        f"its {name} differs from that of the eager step by {float(errors[worst]):.2g} (relative)"
    )


def _errors(
    values: Sequence[Tensor], gradient: Sequence[Tensor], right: Named, truth: Sequence[Tensor]
) -> Tensor:
    """Relative errors: of each value, then of each parameter's gradient."""
    sizes = [torch.linalg.vector_norm(x.double()) for x in right.values()]
    own = torch.stack([*sizes, *(torch.linalg.vector_norm(g.double()) for g in truth)])
    parts = own[len(sizes) :]
    if len(parts):
        own[len(sizes) :] = torch.maximum(parts, parts.norm() * _NEGLIGIBLE)
    distances = _distances([*values, *gradient], [*right.values(), *truth])
    return torch.where(own > 0, distances / own.clamp(min=1e-300), distances)


def _distances(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    pairs = zip(left, right, strict=True)
    return torch.stack([torch.linalg.vector_norm(a.double() - b.double()) for a, b in pairs])


def with_last_bits_changed(tensor: Tensor, bits: int) -> Tensor:
    """Every element a little larger or smaller, in turns."""
    flat = tensor.detach().flatten().clone()
    change = bits * torch.finfo(tensor.dtype).eps
    flat[::2] *= 1 + change
    flat[1::2] *= 1 - change
    return flat.view(tensor.shape)
