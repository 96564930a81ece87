"""Tangents of the operations that networks spend their time in.

Each rule states the derivative in full; `t(x)` is the tangent of x, None where that is zero, and
`total` adds what is there. Everything here has a slower equal in PyTorch's own forward-mode
formulas, except BatchNorm's, which is its backward kernel: per channel the map from input to output
tangent is symmetric, so the kernel that applies its transpose applies the map itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import UnsupportedModelError
from .tangents import Lookup, tangent_rule

aten: Any = torch.ops.aten


def total(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are there; None if none is."""
    result: Tensor | None = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


@tangent_rule(aten.mm.default, aten.bmm.default)
def matrix_product(t: Lookup, out: Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    """t(a b) = t(a) b + a t(b)."""
    ta, tb = t(a), t(b)
    return total(None if ta is None else ta @ b, None if tb is None else a @ tb)


@tangent_rule(aten.addmm.default, aten.baddbmm.default)
def affine(
    t: Lookup, out: Tensor, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor | None:
    """t(beta c + alpha a b) = beta t(c) + alpha (t(a) b + a t(b))."""
    product, shift = matrix_product(t, out, a, b), t(c)
    if product is not None and alpha != 1:
        product = product * alpha
    if shift is not None:
        shift = (shift if beta == 1 else shift * beta).expand_as(out)
    return total(product, shift)


@tangent_rule(aten.convolution.default)
def convolution(
    t: Lookup, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any
) -> Tensor | None:
    """t(W * x + b) = W * t(x) + t(W) * x + t(b)."""
    tx, tw, tb = t(x), t(weight), t(bias)
    moved: Tensor | None = None if tx is None else aten.convolution(tx, weight, tb, *geometry)
    if tw is not None:
        turned: Tensor = aten.convolution(x, tw, tb if moved is None else None, *geometry)
        return turned if moved is None else moved.add_(turned)
    if moved is None and tb is not None:
        return tb.view(-1, *[1] * (out.ndim - 2)).expand_as(out)
    return moved


@tangent_rule(aten.add.Tensor, aten.add_.Tensor)
def plus(t: Lookup, out: Tensor, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor | None:
    """t(a + alpha b) = t(a) + alpha t(b)."""
    tb = t(b)
    return _spread(total(t(a), tb if tb is None or alpha == 1 else tb * alpha), out)


@tangent_rule(aten.sub.Tensor, aten.sub_.Tensor)
def minus(t: Lookup, out: Tensor, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor | None:
    """t(a - alpha b) = t(a) - alpha t(b)."""
    tb = t(b)
    return _spread(total(t(a), None if tb is None else tb * -alpha), out)


@tangent_rule(aten.mul.Tensor)
def times(t: Lookup, out: Tensor, a: Tensor, b: Any) -> Tensor | None:
    """t(a b) = t(a) b + a t(b)."""
    ta, tb = t(a), t(b)
    return _spread(total(None if ta is None else ta * b, None if tb is None else a * tb), out)


def _spread(tangent: Tensor | None, out: Tensor) -> Tensor | None:
    """Broadcast and cast a tangent to its tensor: the other operand may be larger or wider."""
    if tangent is None:
        return None
    if tangent.shape != out.shape:
        tangent = tangent.expand_as(out)
    return tangent if tangent.dtype == out.dtype else tangent.to(out.dtype)


@tangent_rule(aten.relu.default, aten.relu_.default)
def relu(t: Lookup, out: Tensor, x: Tensor) -> Tensor | None:
    """t(x) where the result is positive, else 0."""
    tx = t(x)
    return None if tx is None else aten.threshold_backward(tx, out, 0)


@tangent_rule(aten.max_pool2d_with_indices.default)
def max_pool(
    t: Lookup, out: tuple[Tensor, Tensor], x: Tensor, *geometry: Any
) -> tuple[Tensor, None] | None:
    """t(x) at the places of the maxima."""
    tx, (_, where) = t(x), out
    if tx is None:
        return None
    picked = tx.flatten(-2).gather(-1, where.flatten(-2))
    return picked.view_as(where), None


@tangent_rule(aten.embedding.default)
def embedding(
    t: Lookup,
    out: Tensor,
    weight: Tensor,
    index: Tensor,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Tensor | None:
    """t(W)[index], zero at the padding index, whose row autograd does not train."""
    tw = t(weight)
    if tw is None:
        return None
    if by_frequency:
        raise UnsupportedModelError(
            "an embedding with scale_grad_by_freq couples the examples of a batch through its "
            "backward pass alone: turn that option off, or use backend='double_backward'"
        )
    found: Tensor = aten.embedding(tw, index)
    return found if padding < 0 else found.masked_fill_((index == padding).unsqueeze(-1), 0)


@tangent_rule(aten._embedding_bag.default)
def embedding_bag(
    t: Lookup,
    out: tuple[Tensor, ...],
    weight: Tensor,
    index: Tensor,
    offsets: Tensor,
    by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    scale: Tensor | None = None,
    *rest: Any,
) -> tuple[Tensor | None, ...] | None:
    """Sums and means of rows are linear in the table: the same of t(W)."""
    if mode == 2 or by_frequency or t(scale) is not None:
        raise UnsupportedModelError(
            "an EmbeddingBag with mode='max', scale_grad_by_freq or trained per-sample weights has "
            "no tangent rule: use mode='sum' or 'mean', or backend='finite_difference'"
        )
    tw = t(weight)
    if tw is None:
        return None
    bag: Tensor = aten._embedding_bag(tw, index, offsets, False, mode, False, scale, *rest)[0]
    return bag, None, None, None


@tangent_rule(aten.native_layer_norm.default)
def layer_norm(
    t: Lookup,
    out: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor | None, None, None]:
    """With z = (x - mean) / std: w (t(x)/std - mean(..) - z mean(z t(x)/std)) + t(w) z + t(b)."""
    _, mean, rstd = out
    tx, tw, tb = t(x), t(weight), t(bias)
    result = None
    if tx is not None:
        # Per row the Jacobian is symmetric, so the backward kernel without weight is the map.
        moved = aten.native_layer_norm_backward(
            tx, x, shape, mean, rstd, None, None, [True, False, False]
        )[0]
        result = moved if weight is None else moved * weight
    if tw is not None:
        result = total(result, (x - mean) * rstd * tw)
    return _spread(total(result, tb), out[0]), None, None


@tangent_rule(aten.native_group_norm.default)
def group_norm(
    t: Lookup,
    out: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    channels: int,
    area: int,
    groups: int,
    eps: float,
) -> tuple[Tensor | None, None, None]:
    """As `layer_norm`, over the channels and places of a group."""
    _, mean, rstd = out
    tx, tw, tb = t(x), t(weight), t(bias)
    per_channel = [1, channels, *[1] * (x.ndim - 2)]
    result = None
    if tx is not None:
        moved = aten.native_group_norm_backward(
            tx.contiguous(), x.contiguous(), mean, rstd, None, n, channels, area, groups,
            [True, False, False],
        )[0]  # fmt: skip
        result = moved if weight is None else moved * weight.view(per_channel)
    if tw is not None:
        grouped = x.reshape(n, groups, -1)
        z = ((grouped - mean.view(n, groups, 1)) * rstd.view(n, groups, 1)).view_as(x)
        result = total(result, z * tw.view(per_channel))
    return _spread(total(result, None if tb is None else tb.view(per_channel)), out[0]), None, None


@tangent_rule(aten.native_batch_norm.default)
def batch_norm(
    t: Lookup,
    out: tuple[Tensor, Tensor, Tensor],
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor | None, None, None]:
    """Batch statistics couple the examples; their tangents come with those of the input."""
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
    shape = [1, -1, *[1] * (x.ndim - 2)]
    if tw is not None:
        slope = (rstd * tw).to(x.dtype)
        offset = (-mean * slope if tb is None else tb - mean * slope).to(x.dtype)
        if result is None:
            result = torch.addcmul(offset.view(shape), x, slope.view(shape))
        else:  # in place: the kernel's result is ours
            result = result.addcmul_(x, slope.view(shape)).add_(offset.view(shape))
    elif tb is not None:
        result = total(result, tb.view(shape))
    return _spread(result, out[0]), None, None


@tangent_rule(aten._weight_norm_interface.default)
def weight_norm(
    t: Lookup, out: tuple[Tensor, Tensor], v: Tensor, g: Tensor, dim: int = 0
) -> tuple[Tensor | None, Tensor | None]:
    """w = g v / |v|:  t(w) = g/|v| (t(v) - v <v, t(v)>/|v|^2) + v t(g)/|v|."""
    tv, tg = t(v), t(g)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    length = torch.linalg.vector_norm(v, dim=others, keepdim=True)
    turned = stretched = shift = None
    if tv is not None:
        shift = (v * tv).sum(others, keepdim=True) / length
        turned = g / length * (tv - v * shift / length)
    if tg is not None:
        stretched = v * tg / length
    return total(turned, stretched), None if shift is None else shift.view_as(out[1])
