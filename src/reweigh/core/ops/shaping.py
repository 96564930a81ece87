"""Copies, parts and sums of a tensor, and the operations at which its gradient stops.

Views are not listed: their tangent is that view of the tangent.
"""

from __future__ import annotations

from typing import Any

import torch

from .registry import NO_PARAMETERS, Tangent, operation

aten: Any = torch.ops.aten


@operation(
    aten._unsafe_view.default,
    aten.clone.default,
    aten._to_copy.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default,
    aten.constant_pad_nd.default,
    aten.index_select.default,
    aten.gather.default,
)
class Copy:
    """y = some or all elements of x, in a new tensor."""

    tangent = Tangent.ITSELF
    weight_gradient = NO_PARAMETERS
    recorded = NO_PARAMETERS


@operation(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)
class Reduce:
    """y = sums or means of the elements of x."""

    tangent = Tangent.ITSELF
    weight_gradient = NO_PARAMETERS
    recorded = NO_PARAMETERS


@operation(
    aten.detach.default,
    aten.detach_.default,
    aten.bernoulli.default,
    aten.bernoulli.p,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.randint_like.default,
)
class Stop:
    """By the user's wish (also what autograd calls on what it saves), or as only the shape matters."""

    tangent = Tangent.ZERO
    weight_gradient = NO_PARAMETERS
    recorded = NO_PARAMETERS
