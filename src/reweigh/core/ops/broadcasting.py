"""Sums of tangents that may be zero, and the shapes of broadcast operands."""

from __future__ import annotations

from torch import Tensor


def total(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are there; None if none is."""
    result: Tensor | None = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


def spread(tangent: Tensor | None, out: Tensor) -> Tensor | None:
    """Broadcast and cast a tangent to its tensor: the other operand may be larger or wider."""
    if tangent is None:
        return None
    if tangent.shape != out.shape:
        tangent = tangent.expand_as(out)
    return tangent if tangent.dtype == out.dtype else tangent.to(out.dtype)


def per_channel(values: Tensor, out: Tensor) -> Tensor:
    """One value per channel, shaped to be broadcast over an `out` of [n, channels, ...]."""
    return values.view(1, -1, *[1] * (out.ndim - 2))


def reduced(g: Tensor, x: Tensor) -> Tensor:
    """Sum a gradient over the dimensions along which x was broadcast."""
    return g.sum_to_size(x.shape).to(x.dtype)
