"""Convolutions, y = W * x + b, of one to three dimensions, transposed ones included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..torch_internals import saved
from .elementwise import per_channel
from .registry import Layer, Lookup, Needs, Uses, aten, operation

_input_and_weight = saved("input", "weight")
_geometry = saved("stride", "padding", "dilation", "transposed", "output_padding", "groups")


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
        inputs, value = _input_and_weight(node)
        added = None if bias is None else parameters[bias.place]
        return Layer(tuple(uses), (inputs,), (value, added, *_geometry(node)), rules=Convolution)
