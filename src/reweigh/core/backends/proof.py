"""How close is equal: tolerances of the checks that a back-end passes before it is trusted."""

from __future__ import annotations

import torch
from torch import Tensor

# Relative to the size of what is compared. Generous against rounding, small against being wrong:
# a coupling or a missing term is off by tenths.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 5e-2}


def tolerance(kind: torch.dtype) -> float:
    """The relative error below which two results of this precision count as the same."""
    return _TOLERANCE.get(kind, 1e-1)


def due(count: int) -> bool:
    """Whether to look again at the count-th use of something proven: 1, 2, 4, ... and every 128th.

    What a model computes can change without any sign of it: a gate opens, a weight is ramped up.
    """
    return count & (count - 1) == 0 or count % 128 == 0


def probe(losses: Tensor) -> Tensor:
    """Random factors [n] in [-1.5, -0.5] or [0.5, 1.5], the same every time, from no shared generator."""
    generator = torch.Generator().manual_seed(20180611)
    draw = torch.rand(len(losses), 2, generator=generator, dtype=torch.float64, device="cpu")
    factors = (draw[:, 0] + 0.5) * torch.where(draw[:, 1] < 0.5, -1.0, 1.0)
    return factors.to(losses)
