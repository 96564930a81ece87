"""Convolutions, y = W * x + b, of one to three dimensions, transposed ones included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..torch_internals import saved
from .broadcasting import per_channel
from .layer import Layer, Uses
from .registry import Lookup, Needs, aten, operation

_input = saved("input")
_weight_and_geometry = saved(
    "weight", "stride", "padding", "dilation", "transposed", "output_padding", "groups"
)


class ConvolutionLayer(Layer):
    """y = W * x + b. Uses: weight, bias. Fixed: the value of the weight, and the geometry."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """V * x + v."""
        weight, bias = values
        if weight is None:
            assert bias is not None
            return per_channel(bias, g).expand_as(g)
        result: Tensor = aten.convolution(self.inputs[0], weight, bias, *self.fixed[1:])
        return result

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """The weight half of the backward kernel."""
        mask = [False, *[use is not None for use in self.uses]]
        weight, *geometry = self.fixed
        (x,), channels = self.inputs, [g.shape[1]]
        _, gw, gb = aten.convolution_backward(g, x, weight, channels, *geometry, mask)
        return gw, gb


@operation(aten.convolution.default, node="ConvolutionBackward0")
class Convolution:
    """y = W * x + b."""

    @staticmethod
    def tangent(
        t: Lookup, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any
    ) -> Tensor | None:
        """W * t(x) + t(W) * x + t(b)."""
        tx, tw, tb = t(x), t(weight), t(bias)
        by_input: Tensor | None = None
        if tx is not None:
            by_input = aten.convolution(tx, weight, tb, *geometry)
        if tw is not None:
            by_weight: Tensor = aten.convolution(x, tw, tb if tx is None else None, *geometry)
            return by_weight if by_input is None else by_input.add_(by_weight)
        if by_input is None and tb is not None:
            return per_channel(tb, out).expand_as(out)
        return by_input

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None,
        *geometry: Any,
    ) -> Any:  # fmt: skip
        """The weight half of the convolution's own backward kernel."""
        mask = [needs(x), needs(weight), needs(bias)]
        sizes = None if bias is None else list(bias.shape)
        return aten.convolution_backward(g, x, weight, sizes, *geometry, mask)

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
        """Where the weight is used as it is."""
        x, weight, bias = uses
        if x is not None or (weight and weight.transposed):
            return None
        return ConvolutionLayer((weight, bias), (_input(node),), _weight_and_geometry(node))
