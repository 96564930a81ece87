"""Compiled numbers against those of the eager step: nothing that a compiler makes is believed unseen.

Losses, scores, the clean loss, the gradient and the buffers that the forward writes must be the same up
to rounding. (Weights follow from scores, by a rule that is continuous.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..rounding import tolerance

_NEGLIGIBLE = 1e-3  # of the whole gradient: below that, one parameter's may be rounding alone
Named = Mapping[str, Tensor]


def difference(
    mine: Named,
    right: Named,
    gradient: Sequence[Tensor],
    truth: Sequence[Tensor],
    kind: torch.dtype,
) -> str | None:
    """What disagrees, in words; None if nothing does. kind: the coarsest precision that takes part."""
    close = tolerance(kind)
    for name, value in right.items():
        error = _relative(mine[name], value)
        if not error <= close:
            return f"its {name} differ from those of the eager step by {error:.2g} (relative)"
    if not truth:
        return None
    sizes = torch.stack([torch.linalg.vector_norm(g.double()) for g in truth])
    errors = torch.stack(
        [
            torch.linalg.vector_norm(a.double() - b.double())
            for a, b in zip(gradient, truth, strict=True)
        ]
    )
    bounds = torch.maximum(sizes, sizes.norm() * _NEGLIGIBLE) * close
    if not bool((errors <= bounds).all()):
        worst = float((errors / bounds.clamp(min=1e-300)).max()) * close
        return f"its gradient differs from that of the eager step by {worst:.2g} (relative)"
    return None


def _relative(mine: Tensor, right: Tensor) -> float:
    if mine.shape != right.shape:
        return float("inf")
    size = float(torch.linalg.vector_norm(right.double()))
    error = float(torch.linalg.vector_norm(mine.double() - right.double()))
    return error / size if size > 0 else error
