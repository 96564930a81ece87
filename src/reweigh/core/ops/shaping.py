"""Copies, parts and sums of a tensor, and the operations at which its gradient stops.

Views are not listed: their tangent is that view of the tangent.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .registry import NO_PARAMETERS, LinearTangent, ZeroTangent, aten, operation


@operation(
    aten._unsafe_view.default,
    aten.clone.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default,
    aten.index_select.default,
    aten.gather.default,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.mean.default,
    aten.mean.dim,
    lacks=NO_PARAMETERS,
)
class Elements:
    """y = elements of x in a new tensor, or sums or means of them."""

    tangent = LinearTangent()


def _cast(tangent: Tensor, **options: Any) -> Any:
    """The tangent, cast alike; integers have none."""
    kind = options.get("dtype")
    if kind is None or kind.is_floating_point or kind.is_complex:
        return aten._to_copy(tangent, **options)
    return None


@operation(aten._to_copy.default, lacks=NO_PARAMETERS)
class Cast:
    """y = x in another type, on another device or laid out in another way."""

    tangent = LinearTangent(_cast)


@operation(aten.constant_pad_nd.default, lacks=NO_PARAMETERS)
class Pad:
    """y = x with a constant around it, whose derivative is zero."""

    tangent = LinearTangent(lambda tangent, pad, value=0: aten.constant_pad_nd(tangent, pad))


@operation(
    aten.detach.default,
    aten.detach_.default,
    aten.bernoulli.default,
    aten.bernoulli.p,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.randint_like.default,
    lacks=NO_PARAMETERS,
)
class NoDerivative:
    """y has no derivative: x was detached (by autograd, too, for what it saves), or only its shape or
    its probabilities matter."""

    tangent = ZeroTangent()
