"""Convolutions, y = W * x + b, in one to three dimensions, transposed ones included."""

from typing import Any

from torch import Tensor

from ..torch_internals import saved
from .elementwise import per_channel
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, aten, operation

_input_and_weight = saved("input", "weight")
_geometry = saved("stride", "padding", "dilation", "transposed", "output_padding", "groups")


@operation(aten.convolution.default, node="ConvolutionBackward0")
class Convolution:
    """y = W * x + b. The rest of its arguments are the geometry."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, w: Tensor, b: Value, *geometry: Any) -> Value:
        """W * t(x) + t(W) * x + t(b)."""
        tx, tw, tb = t(x), t(w), t(b)
        by_input: Value = None
        if tx is not None:
            by_input = aten.convolution(tx, w, tb, *geometry)
        if tw is not None:
            by_weight: Tensor = aten.convolution(x, tw, tb if tx is None else None, *geometry)
            return by_weight if by_input is None else by_input.add_(by_weight)
        if by_input is None and tb is not None:
            return per_channel(tb, out).expand_as(out)
        return by_input

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, x: Tensor, *rest: Any) -> Any:
        """The weight half of the convolution's own backward kernel."""
        w, b, *geometry = rest
        mask = [needs(x), needs(w), needs(b)]
        sizes = None if b is None else list(b.shape)
        return aten.convolution_backward(g, x, w, sizes, *geometry, mask)

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Where the weight is used as it is."""
        x, weight, bias = uses
        if x is not None or (weight and weight.transposed):
            return None
        inputs, value = _input_and_weight(node)
        added = None if bias is None else parameters[bias.place]
        return Layer(tuple(uses), (inputs,), (value, added, *_geometry(node)), rules=Convolution)
