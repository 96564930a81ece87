"""A safeguard against steps that are too long for the clean loss: a factor in [0, 1] on the gradient.

    d = sum_i w_i grad f_i        factor = min(1, <grad G, d> / |d|^2)

so that a step never goes further along d than the clean gradient's own projection on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..errors import unknown
from .parameters import Direction, dot

# gradient of the weighted loss per aligned parameter, clean gradient, their inner product -> factor
Safeguard = Callable[[Sequence[Tensor | None], Direction, Tensor], Tensor]


class Projection:
    """min(1, <grad G, d> / |d|^2)."""

    def __call__(
        self, gradient: Sequence[Tensor | None], direction: Direction, slope: Tensor
    ) -> Tensor:
        """The factor for this step."""
        found = [g for g in gradient if g is not None]
        square = dot(found, found) if found else torch.zeros_like(slope)
        return torch.where(square > 0, slope / square.clamp(min=1e-38), 1.0).clamp(0, 1)


def make_safeguard(choice: str | Safeguard | None) -> Safeguard | None:
    """The safeguard of a name; a callable or None is taken as it is."""
    if not isinstance(choice, str):
        return choice
    if choice != "auto":
        raise unknown("safeguard", choice, ["auto"])
    return Projection()
