"""Weight normalisation, w = g v / |v|: a weight as its length g times the direction of v."""

from __future__ import annotations

import torch
from torch import Tensor

from .broadcasting import total
from .registry import Lookup, aten, operation


@operation(
    aten._weight_norm_interface.default,
    lacks="it never meets the batch: autograd goes on from w to its parameters",
)
class WeightNorm:
    """w = g v / |v|, and |v|."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], v: Tensor, g: Tensor, dim: int = 0
    ) -> tuple[Tensor | None, Tensor | None]:
        """t(|v|) = <v, t(v)>/|v|;  t(w) = g/|v| (t(v) - v t(|v|)/|v|) + v t(g)/|v|."""
        tv, tg = t(v), t(g)
        others = [d for d in range(v.ndim) if d != dim % v.ndim]
        length = torch.linalg.vector_norm(v, dim=others, keepdim=True)
        by_direction = by_length = t_length = None
        if tv is not None:
            t_length = (v * tv).sum(others, keepdim=True) / length
            by_direction = g / length * (tv - v * t_length / length)
            t_length = t_length.view_as(out[1])
        if tg is not None:
            by_length = v * tg / length
        return total(by_direction, by_length), t_length
