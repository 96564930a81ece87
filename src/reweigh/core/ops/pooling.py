"""Pooling and its reverse: maxima or means over windows, and repeated pixels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .registry import NO_PARAMETERS, LinearTangent, Lookup, aten, operation


@operation(aten.max_pool2d_with_indices.default, lacks=NO_PARAMETERS)
class MaxPool:
    """y = the largest of each window, and where it was."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], x: Tensor, *geometry: Any
    ) -> tuple[Tensor, None] | None:
        """t(x) at the places of the maxima."""
        tx, (_, where) = t(x), out
        if tx is None:
            return None
        picked = tx.flatten(-2).gather(-1, where.flatten(-2))
        return picked.view_as(where), None


@operation(
    aten.avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.upsample_nearest2d.vec,
    lacks=NO_PARAMETERS,
)
class MeanPool:
    """y = the mean of each window; or, the other way, every pixel repeated."""

    tangent = LinearTangent()
