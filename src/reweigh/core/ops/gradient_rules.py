"""Gradients of an operation with respect to its parameters, given the gradient at its result.

    y = op(x, W),  g = d loss / d y   ->   d loss / d W

Only the weight half of each operation's backward: the input half has been done by autograd. An
operation without a rule is run once more and differentiated by autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

Needs = Callable[[Any], bool]
# needs, gradient at the result, result, the operation's own arguments -> one gradient per argument
Rule = Callable[..., Sequence[Tensor | None]]

RULES: dict[OpOverload, Rule] = {}
aten: Any = torch.ops.aten


def gradient_rule(*operations: OpOverload) -> Callable[[Rule], Rule]:
    """Register the weight gradients of an operation: a faster way than running it again."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


def gradients(
    func: OpOverload, args: Any, kwargs: Any, out: Any, g: Tensor, sources: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradient for each of `sources`, which are among the arguments; None where there is none."""
    rule = RULES.get(func)
    if rule is None:
        return _by_autograd(func, args, kwargs, g, sources)
    wanted = {id(source) for source in sources}
    found = rule(lambda x: id(x) in wanted, g, out, *args, **kwargs)
    by_id: dict[int, Tensor] = {}
    for x, gradient in zip(args, found, strict=False):
        if gradient is not None:
            by_id[id(x)] = by_id[id(x)] + gradient if id(x) in by_id else gradient
    return [by_id.get(id(source)) for source in sources]


def _by_autograd(
    func: OpOverload, args: Any, kwargs: Any, g: Tensor, sources: Sequence[Tensor]
) -> list[Tensor | None]:
    leaves = {id(x): x.detach().requires_grad_() for x in sources}

    def swap(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [swap(item) for item in value]
        if isinstance(value, Tensor):
            return leaves.get(id(value), value.detach())
        return value

    with torch.enable_grad():
        swapped = swap(list(args))
        if func._schema.is_mutable:  # the kept input may be needed again
            swapped[0] = swapped[0].clone()
        out = func(*swapped, **{k: swap(v) for k, v in kwargs.items()})
        first = out[0] if isinstance(out, (tuple, list)) else out
        return list(torch.autograd.grad(first, list(leaves.values()), g, allow_unused=True))


def _reduced(g: Tensor, x: Tensor) -> Tensor:
    """Sum a gradient over the dimensions along which x was broadcast."""
    return g.sum_to_size(x.shape).to(x.dtype)


@gradient_rule(aten.mm.default)
def matrix_product(needs: Needs, g: Tensor, out: Tensor, a: Tensor, b: Tensor) -> Any:
    """d/da = g b',  d/db = a' g."""
    return g @ b.t() if needs(a) else None, a.t() @ g if needs(b) else None


@gradient_rule(aten.addmm.default)
def affine(
    needs: Needs,
    g: Tensor,
    out: Tensor,
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Any:
    """As the matrix product, and d/dc = the sum of g over rows."""
    shift = _reduced(g, c) * beta if needs(c) else None
    left, right = matrix_product(needs, g if alpha == 1 else g * alpha, out, a, b)
    return shift, left, right


@gradient_rule(aten.convolution.default)
def convolution(
    needs: Needs,
    g: Tensor,
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *geometry: Any,
) -> Any:
    """The weight half of the convolution's own backward kernel."""
    mask = [needs(x), needs(weight), needs(bias)]
    sizes = None if bias is None else list(bias.shape)
    return aten.convolution_backward(g, x, weight, sizes, *geometry, mask)


@gradient_rule(aten.embedding.default)
def embedding(
    needs: Needs,
    g: Tensor,
    out: Tensor,
    weight: Tensor,
    index: Tensor,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Any:
    """Sum of g over the places where each row was looked up."""
    return (aten.embedding_dense_backward(g, index, weight.shape[0], padding, by_frequency),)


@gradient_rule(aten.native_layer_norm.default)
def layer_norm(
    needs: Needs,
    g: Tensor,
    out: Any,
    x: Tensor,
    shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Any:
    """The affine half of the backward kernel: sums of g z and of g."""
    mask = [needs(x), needs(weight), needs(bias)]
    gx, gw, gb = aten.native_layer_norm_backward(g, x, shape, out[1], out[2], weight, bias, mask)
    return gx, None, gw, gb


@gradient_rule(aten.native_group_norm.default)
def group_norm(
    needs: Needs,
    g: Tensor,
    out: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *geometry: Any,
) -> Any:
    """The affine half of the backward kernel."""
    mask = [needs(x), needs(weight), needs(bias)]
    return aten.native_group_norm_backward(
        g.contiguous(), x.contiguous(), out[1], out[2], weight, *geometry[:-1], mask
    )


@gradient_rule(aten.native_batch_norm.default)
def batch_norm(
    needs: Needs,
    g: Tensor,
    out: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The affine half of the backward kernel, with running statistics."""
    mask = [needs(x), needs(weight), needs(bias)]
    return aten.native_batch_norm_backward(
        g, x, weight, mean, var, out[1], out[2], training, eps, mask
    )


@gradient_rule(aten.add.Tensor, aten.add_.Tensor)
def plus(needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any, *, alpha: float = 1) -> Any:
    """g, summed over what was broadcast."""
    return _reduced(g, a) if needs(a) else None, _reduced(g * alpha, b) if needs(b) else None


@gradient_rule(aten.mul.Tensor)
def times(needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any) -> Any:
    """g times the other factor, summed over what was broadcast."""
    return _reduced(g * b, a) if needs(a) else None, _reduced(g * a, b) if needs(b) else None
