"""Normalisation: y = w z + b with z = (x - mean) / std, over a row, a group of channels or a batch.

    t(y) = w J t(x) + t(w) z + t(b),    J t = (t - mean(t) - z mean(z t)) / std

J, the derivative of z, is symmetric per row, group or channel. So the backward kernel, which applies
its transpose, applies J itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..torch_internals import saved
from .broadcasting import per_channel, spread, total
from .layer import Layer, Uses
from .registry import Lookup, Needs, aten, operation

_input_and_statistics = saved("input", "result1", "result2")
_shape_and_values = saved("normalized_shape", "weight", "bias")
Result = tuple[Tensor, Tensor, Tensor]  # y, mean, 1 / std


class NormLayer(Layer):
    """Layer normalisation. Uses: weight, bias. Inputs: x, mean, 1 / std. Fixed: shape, weight, bias."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """v z + u, with v for the weight and u for the bias."""
        (x, mean, rstd), (weight, bias) = self.inputs, values
        if weight is None:
            assert bias is not None
            return bias.expand_as(g)
        z = (x - mean).mul_(rstd)
        return z.mul_(weight) if bias is None else torch.addcmul(bias, z, weight)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """The affine half of the backward kernel: sums of g z and of g."""
        (x, mean, rstd), (shape, weight, bias) = self.inputs, self.fixed
        mask = [False, *[use is not None for use in self.uses]]
        _, gw, gb = aten.native_layer_norm_backward(g, x, shape, mean, rstd, weight, bias, mask)
        return gw, gb


@operation(aten.native_layer_norm.default, node="NativeLayerNormBackward0")
class LayerNorm:
    """Over the last dimensions of each row."""

    @staticmethod
    def tangent(
        t: Lookup, out: Result, x: Tensor, shape: list[int],
        weight: Tensor | None, bias: Tensor | None, eps: float,
    ) -> tuple[Tensor | None, None, None]:  # fmt: skip
        """w J t(x) + t(w) z + t(b)."""
        _, mean, rstd = out
        tx, tw, tb = t(x), t(weight), t(bias)
        result = None
        if tx is not None:
            result = aten.native_layer_norm_backward(
                tx, x, shape, mean, rstd, None, None, [True, False, False]
            )[0]
            result = result if weight is None else result * weight
        if tw is not None:
            result = total(result, (x - mean) * rstd * tw)
        return spread(total(result, tb), out[0]), None, None

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Result, x: Tensor, shape: list[int],
        weight: Tensor | None, bias: Tensor | None, eps: float,
    ) -> Any:  # fmt: skip
        """The affine half of the backward kernel: sums of g z and of g."""
        _, mean, rstd = out
        mask = [needs(x), needs(weight), needs(bias)]
        gx, gw, gb = aten.native_layer_norm_backward(g, x, shape, mean, rstd, weight, bias, mask)
        return gx, None, gw, gb

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
        """Not under autocast, where the statistics are of another precision."""
        x, weight, bias = uses
        inputs = _input_and_statistics(node)
        if x is not None or len({value.dtype for value in inputs}) > 1:
            return None
        if (weight and weight.transposed) or (bias and bias.transposed):
            return None
        return NormLayer((weight, bias), inputs, _shape_and_values(node))


@operation(
    aten.native_group_norm.default, lacks="a layer whose statistics are per group is not written"
)
class GroupNorm:
    """Over the channels and places of each group."""

    @staticmethod
    def tangent(
        t: Lookup, out: Result, x: Tensor, weight: Tensor | None, bias: Tensor | None,
        n: int, channels: int, area: int, groups: int, eps: float,
    ) -> tuple[Tensor | None, None, None]:  # fmt: skip
        """w J t(x) + t(w) z + t(b)."""
        _, mean, rstd = out
        tx, tw, tb = t(x), t(weight), t(bias)
        result = None
        if tx is not None:
            result = aten.native_group_norm_backward(
                tx.contiguous(), x.contiguous(), mean, rstd, None, n, channels, area, groups,
                [True, False, False],
            )[0]  # fmt: skip
            result = result if weight is None else result * per_channel(weight, x)
        if tw is not None:
            grouped = x.reshape(n, groups, -1)
            z = ((grouped - mean.view(n, groups, 1)) * rstd.view(n, groups, 1)).view_as(x)
            result = total(result, z * per_channel(tw, x))
        result = total(result, None if tb is None else per_channel(tb, x))
        return spread(result, out[0]), None, None

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Result, x: Tensor, weight: Tensor | None,
        bias: Tensor | None, *geometry: Any,
    ) -> Any:  # fmt: skip
        """The affine half of the backward kernel."""
        _, mean, rstd = out
        mask = [needs(x), needs(weight), needs(bias)]
        return aten.native_group_norm_backward(
            g.contiguous(), x.contiguous(), mean, rstd, weight, *geometry[:-1], mask
        )


@operation(
    aten.native_batch_norm.default,
    lacks="in training it couples the examples of a batch, which ghost cannot follow",
)
class BatchNorm:
    """Over the batch, per channel; by the running statistics where it is not in training."""

    @staticmethod
    def tangent(
        t: Lookup, out: Result, x: Tensor, weight: Tensor | None, bias: Tensor | None,
        running_mean: Tensor | None, running_var: Tensor | None,
        training: bool, momentum: float, eps: float,
    ) -> tuple[Tensor | None, None, None]:  # fmt: skip
        """w J t(x) + x s + (t(b) - mean s) with s = t(w) / std."""
        tx, tw, tb = t(x), t(weight), t(bias)
        if training:
            mean, rstd = out[1], out[2]
        else:
            assert running_mean is not None
            assert running_var is not None
            mean, rstd = running_mean, (running_var + eps).rsqrt()
        result = None
        if tx is not None:
            result = aten.native_batch_norm_backward(
                tx, x, weight, running_mean, running_var, out[1], out[2], training, eps,
                [True, False, False],
            )[0]  # fmt: skip
        if tw is not None:
            slope = (rstd * tw).to(x.dtype)
            offset = (-mean * slope if tb is None else tb - mean * slope).to(x.dtype)
            slope, offset = per_channel(slope, x), per_channel(offset, x)
            if result is None:
                result = torch.addcmul(offset, x, slope)
            else:  # in place: the kernel's result is ours
                result = result.addcmul_(x, slope).add_(offset)
        elif tb is not None:
            result = total(result, per_channel(tb, x))
        return spread(result, out[0]), None, None

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Result, x: Tensor, weight: Tensor | None,
        bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
        training: bool, momentum: float, eps: float,
    ) -> Any:  # fmt: skip
        """The affine half of the backward kernel."""
        _, mean, rstd = out
        mask = [needs(x), needs(weight), needs(bias)]
        return aten.native_batch_norm_backward(
            g, x, weight, running_mean, running_var, mean, rstd, training, eps, mask
        )
