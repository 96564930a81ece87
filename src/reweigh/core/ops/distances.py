"""Lengths, distances between two lists of points, and images read at the points of a grid."""

from typing import Any

import torch
from torch import Tensor

from .elementwise import total
from .parameterless import NO_PARAMETERS
from .registry import Lookup, Value, aten, operation


def _slopes(x: Tensor, length: Tensor, p: float) -> Tensor:
    """d |x|_p / d x, with the length broadcast over x; zero where the length is."""
    if p == float("inf"):
        return x.sign() * (x.abs() == length)
    return x.sign() * (x.abs() / torch.where(length > 0, length, 1.0)) ** (p - 1)


@operation(aten.norm.Scalar, lacks=NO_PARAMETERS)
class Length:
    """y = |x|_p over all of x. PyTorch's own formula fails for more than one dimension."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, p: float = 2) -> Value:
        """< d y / d x, t(x) >."""
        tx = t(x)
        return None if tx is None or p == 0 else (_slopes(x, out, p) * tx).sum()


@operation(aten._cdist_forward.default, lacks="few models have it, and it is small where they do")
class Distances:
    """y_ij = |a_i - b_j|_p. Its backward cannot be differentiated; the tangent holds all differences."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Tensor, p: float, mode: Any = None) -> Value:
        """< d y_ij / d (a_i - b_j), t(a_i) - t(b_j) >; zero where two points are the same."""
        ta, tb = t(a), t(b)
        moved = total(
            None if ta is None else ta.unsqueeze(-2), None if tb is None else -tb.unsqueeze(-3)
        )
        if moved is None or p == 0:
            return None
        apart = a.unsqueeze(-2) - b.unsqueeze(-3)
        # Not from the result: ghost keeps only its shape.
        length = torch.linalg.vector_norm(apart, p, dim=-1, keepdim=True)
        return (_slopes(apart, length, p) * moved).sum(-1)


@operation(aten.grid_sampler_2d.default, lacks=NO_PARAMETERS)
class GridSample:
    """y = x [n, c, h, w] read at the points of a grid [n, h', w', 2]. The rest: how it is read."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, grid: Tensor, *rest: Any) -> Value:
        """t(x) read at the grid, and < d y / d grid, t(grid) > for each channel by itself."""
        tx, tg = t(x), t(grid)
        by_image = None if tx is None else aten.grid_sampler_2d(tx, grid, *rest)
        if tg is None:
            return by_image
        # The kernel sums over channels, so that each becomes an image of its own.
        c = x.shape[1]
        alone, places = x.flatten(0, 1).unsqueeze(1), grid.repeat_interleave(c, 0)
        _, slopes = aten.grid_sampler_2d_backward(
            torch.ones_like(out).flatten(0, 1).unsqueeze(1), alone, places, *rest, [False, True]
        )
        by_grid = (slopes * tg.repeat_interleave(c, 0)).sum(-1)
        return total(by_image, by_grid.view_as(out))
