"""A parameter laid out once per example: y = x, as often as there are examples (expand, repeat).

A class token that is expanded over the batch, a first state of a recurrent layer, the weights of
InstanceNorm. Where the copies are not one per example, `ghost` finds that out by measuring, and watches
the forward pass instead.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..torch_internals import result_metadata
from .registry import Layer, LinearTangent, Needs, Parameters, Uses, Values, aten, operation


def _folded(g: Tensor, shape: Sequence[int]) -> Tensor:
    """The sum of a gradient over all copies of a tensor of `shape`, which has as many dimensions."""
    sizes = zip(g.shape, shape, strict=True)
    if all(own in (1, size) for size, own in sizes):
        return g.sum_to_size(shape)
    blocks = [part for size, own in zip(g.shape, shape, strict=True) for part in (size // own, own)]
    return g.reshape(blocks).sum(list(range(0, 2 * g.ndim, 2)))


def _padded(shape: Sequence[int], ndim: int) -> tuple[int, ...]:
    return (*[1] * (ndim - len(shape)), *shape)


class BroadcastLayer(Layer):
    """Copies of a parameter. Uses: the parameter. Fixed: its shape as used, as it is and with as many
    dimensions as y."""

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """The same copies of v."""
        (value,), (_, shape) = values, self.fixed
        assert value is not None
        copies = [size // own for size, own in zip(g.shape, shape, strict=True)]
        one = value.reshape(shape)
        expands = all(own == 1 or often == 1 for own, often in zip(shape, copies, strict=True))
        return one.expand_as(g) if expands else one.repeat(copies)

    def gradients(self, g: Tensor) -> Values:
        """The sum over the copies."""
        own, shape = self.fixed
        return (_folded(g, shape).view(own),)


def _layer(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
    (use,) = uses
    if use is None or use.transposed:
        return None
    own = use.of(parameters).shape
    shape = _padded(own, len(result_metadata(node)[0].shape))
    return BroadcastLayer((use,), (), (own, shape), divisible=shape[:1] == (1,))


@operation(aten.expand.default, node="ExpandBackward0", reshaping=True)
class Expand:
    """y = x, along dimensions in which x has the size one."""

    tangent = LinearTangent()

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, x: Tensor, *rest: Any) -> Any:
        """The sum of g over the copies."""
        return (_folded(g, _padded(x.shape, g.ndim)).view(x.shape),)

    recorded = staticmethod(_layer)


@operation(aten.repeat.default, node="RepeatBackward0", reshaping=True)
class Repeat:
    """y = x after x, along any dimension."""

    tangent = LinearTangent()
    weight_gradient = Expand.weight_gradient
    recorded = staticmethod(_layer)
