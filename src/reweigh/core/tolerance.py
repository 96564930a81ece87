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


def probe(losses: Tensor) -> Tensor:
    """Random factors [n] in [-1.5, -0.5] or [0.5, 1.5], the same every time, from no shared generator."""
    generator = torch.Generator().manual_seed(20180611)
    draw = torch.rand(len(losses), 2, generator=generator, dtype=torch.float64)
    factors = (draw[:, 0] + 0.5) * torch.where(draw[:, 1] < 0.5, -1.0, 1.0)
    return factors.to(losses)
