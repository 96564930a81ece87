"""Normalisation: y = w z + b with z = (x - mean) / std, over a row, a group of channels or a batch.

    t(y) = w J t(x) + t(w) z + t(b),    J t = (t - mean(t) - z mean(z t)) / std

J, the derivative of z, is symmetric per row, group or channel. So the backward kernel, which applies
its transpose, applies J itself. The weight gradients, sums of g z and of g, are its affine half.

Weight normalisation, w = g v / |v|, is here, too: a weight as its length g times the direction of v.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..torch_internals import saved
from .elementwise import per_channel, spread, total
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, Values, aten, operation

_input_and_statistics = saved("input", "result1", "result2")
_shape_and_values = saved("normalized_shape", "weight", "bias")
_groups_and_weight = saved("group", "weight")
_FOR_INPUT = [True, False, False]  # the half of a backward kernel that is J
Result = tuple[Tensor, Tensor, Tensor]  # y, mean, 1 / std
Tangents = tuple[Value, None, None]  # the statistics have none


class NormLayer(Layer):
    """Layer normalisation. Uses: weight, bias. Inputs: x, mean, 1 / std. Fixed: shape, weight, bias."""

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """v z + u, with v for the weight and u for the bias."""
        (x, mean, rstd), (weight, bias) = self.inputs, values
        if weight is None:
            assert bias is not None
            return bias.expand_as(g)
        z = (x - mean).mul_(rstd)  # in the precision of the statistics, which may be finer
        if z.dtype != g.dtype:
            return (z * weight if bias is None else z * weight + bias).to(g.dtype)
        return z.mul_(weight) if bias is None else torch.addcmul(bias, z, weight)

    def gradients(self, g: Tensor) -> Values:
        """The affine half of the backward kernel."""
        (x, mean, rstd), (shape, weight, bias) = self.inputs, self.fixed
        mask = [False, *[use is not None for use in self.uses]]
        _, gw, gb = aten.native_layer_norm_backward(g, x, shape, mean, rstd, weight, bias, mask)
        return gw, gb


def _affine(out: Result, moved: Value, weight: Value, scaled: Value, tb: Value) -> Tangents:
    """w J t(x) + t(w) z + t(b), given `moved` = J t(x) and `scaled` = t(w) z."""
    if moved is not None and weight is not None:
        moved = moved * weight
    return spread(total(moved, scaled, tb), out[0]), None, None


@operation(aten.native_layer_norm.default, node="NativeLayerNormBackward0")
class LayerNorm:
    """Over the last dimensions of each row."""

    @staticmethod
    def tangent(t: Lookup, out: Result, x: Tensor, shape: Any, w: Value, b: Value, eps: Any) -> Any:
        """w J t(x) + t(w) z + t(b)."""
        _, mean, rstd = out
        tx, tw, moved = t(x), t(w), None
        x = x.to(mean.dtype)  # finer under autocast, where the kernel takes no two precisions
        if tx is not None:
            moved, *_ = aten.native_layer_norm_backward(
                tx.to(mean.dtype), x, shape, mean, rstd, None, None, _FOR_INPUT
            )
        scaled = None if tw is None else (x - mean) * rstd * tw
        return _affine(out, moved, w, scaled, t(b))

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Result, x: Tensor, *rest: Any) -> Any:
        """The affine half of the backward kernel."""
        shape, w, b, _ = rest
        mask = [needs(x), needs(w), needs(b)]
        gx, gw, gb = aten.native_layer_norm_backward(g, x, shape, *out[1:], w, b, mask)
        return gx, None, gw, gb

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Also under autocast, where the statistics are of a finer precision than the input."""
        x, weight, bias = uses
        if x is not None or any(use and use.transposed for use in uses):
            return None
        return NormLayer((weight, bias), _input_and_statistics(node), _shape_and_values(node))


class GroupNormLayer(Layer):
    """Group normalisation. Uses: weight, bias. Inputs: x, mean, 1 / std. Fixed: groups, weight."""

    def tangent(self, values: Values, g: Tensor) -> Tensor:
        """v z + u = s x + (u - s mean) with s = v / std, per example and channel."""
        (x, mean, rstd), (weight, bias) = self.inputs, values
        if weight is None:
            assert bias is not None
            return per_channel(bias, g).expand_as(g)
        width = weight.shape[0] // self.fixed[0]  # channels per group
        slope = rstd.repeat_interleave(width, 1) * weight
        offset = slope * -mean.repeat_interleave(width, 1)
        if bias is not None:
            offset += bias
        slope, offset = (v.view(*v.shape, *[1] * (x.ndim - 2)) for v in (slope, offset))
        return torch.addcmul(offset, x.to(slope.dtype), slope).to(g.dtype)

    def gradients(self, g: Tensor) -> Values:
        """The affine half of the backward kernel."""
        (x, mean, rstd), (groups, weight) = self.inputs, self.fixed
        n, channels, *places = x.shape
        mask = [False, *[use is not None for use in self.uses]]
        geometry = n, channels, math.prod(places), groups
        _, gw, gb = aten.native_group_norm_backward(
            g.contiguous(), x.contiguous(), mean, rstd, weight, *geometry, mask
        )
        return gw, gb


@operation(aten.native_group_norm.default, node="NativeGroupNormBackward0")
class GroupNorm:
    """Over the channels and places of each group. The rest: n, channels, area, groups, eps."""

    @staticmethod
    def tangent(t: Lookup, out: Result, x: Tensor, w: Value, b: Value, *rest: Any) -> Tangents:
        """w J t(x) + t(w) z + t(b)."""
        (_, mean, rstd), (n, _, _, groups, _) = out, rest
        tx, moved, scaled = t(x), None, None
        x = x.to(mean.dtype)
        w, tw, tb = (None if v is None else per_channel(v, x) for v in (w, t(w), t(b)))
        if tx is not None:
            moved, *_ = aten.native_group_norm_backward(
                tx.to(x).contiguous(), x.contiguous(), mean, rstd, None, *rest[:-1], _FOR_INPUT
            )
        if tw is not None:
            rows = x.reshape(n, groups, -1)
            z = (rows - mean.view(n, groups, 1)) * rstd.view(n, groups, 1)
            scaled = z.view_as(x) * tw
        return _affine(out, moved, w, scaled, tb)

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Result, x: Tensor, *rest: Any) -> Any:
        """The affine half of the backward kernel."""
        w, b, *geometry, _ = rest
        mask = [needs(x), needs(w), needs(b)]
        return aten.native_group_norm_backward(
            g.contiguous(), x.contiguous(), *out[1:], w, *geometry, mask
        )

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """Also under autocast, where the statistics are of a finer precision than the input."""
        x, weight, bias = uses
        if x is not None or any(use and use.transposed for use in uses):
            return None
        return GroupNormLayer((weight, bias), _input_and_statistics(node), _groups_and_weight(node))


@operation(
    aten.native_batch_norm.default,
    lacks="in training it couples the examples of a batch, which ghost cannot follow",
)
class BatchNorm:
    """Over the batch, per channel; by the running statistics where it is not in training.

    The rest of its arguments: running mean, running variance, training, momentum, eps.
    """

    @staticmethod
    def tangent(t: Lookup, out: Result, x: Tensor, w: Value, b: Value, *rest: Any) -> Tangents:
        """w J t(x) + x s + (t(b) - mean s) with s = t(w) / std."""
        (_, mean, rstd), (running_mean, running_var, training, _, eps) = out, rest
        tx, tw, tb = t(x), t(w), t(b)
        result = None
        if tx is not None:
            result = aten.native_batch_norm_backward(
                tx, x, w, running_mean, running_var, mean, rstd, training, eps, _FOR_INPUT
            )[0]
        if tw is not None:
            if not training:
                mean, rstd = running_mean, (running_var + eps).rsqrt()
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
    def weight_gradient(needs: Needs, g: Tensor, out: Result, x: Tensor, *rest: Any) -> Any:
        """The affine half of the backward kernel."""
        w, b, *running, training, _, eps = rest
        mask = [needs(x), needs(w), needs(b)]
        return aten.native_batch_norm_backward(g, x, w, *running, *out[1:], training, eps, mask)


@operation(
    aten._weight_norm_interface.default,
    lacks="it never meets the batch: autograd goes on from w to its parameters",
)
class WeightNorm:
    """w = g v / |v|, and |v|."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], v: Tensor, g: Tensor, dim: int = 0
    ) -> tuple[Value, Value]:
        """t(|v|) = <v, t(v)>/|v|;  t(w) = g/|v| (t(v) - v t(|v|)/|v|) + v t(g)/|v|."""
        tv, tg = t(v), t(g)
        others = [d for d in range(v.ndim) if d != dim % v.ndim]
        length = torch.linalg.vector_norm(v, dim=others, keepdim=True)
        by_direction = t_length = None
        if tv is not None:
            t_length = (v * tv).sum(others, keepdim=True) / length
            by_direction = g / length * (tv - v * t_length / length)
            t_length = t_length.view_as(out[1])
        by_length = None if tg is None else v * tg / length
        return total(by_direction, by_length), t_length
