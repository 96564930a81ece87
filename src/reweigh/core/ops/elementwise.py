"""Sums, products and copies element by element, and the broadcasting that they need."""

from typing import Any

from torch import Tensor

from ..torch_internals import result_metadata, saved
from .registry import Layer, Lookup, Needs, Parameters, Uses, Value, aten, operation

_alpha, _left, _right = saved("alpha"), saved("self"), saved("other")


def total(*terms: Value) -> Value:
    """The sum of the terms that are there; None if none is."""
    result: Value = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


def spread(tangent: Value, out: Tensor) -> Value:
    """Broadcast and cast a tangent to its tensor: the other operand may be larger or wider."""
    if tangent is None:
        return None
    if tangent.shape != out.shape:
        tangent = tangent.expand_as(out)
    return tangent if tangent.dtype == out.dtype else tangent.to(out.dtype)


def per_channel(values: Tensor, out: Tensor) -> Tensor:
    """One value per channel, shaped to be broadcast over an `out` of [n, channels, ...]."""
    return values.view(1, -1, *[1] * (out.ndim - 2))


def reduced(g: Tensor, x: Tensor) -> Tensor:
    """Sum a gradient over the dimensions along which x was broadcast."""
    return g.sum_to_size(x.shape).to(x.dtype)


def _layer(
    rules: Any, node: Any, uses: Uses, parameters: Parameters, other: Any = None
) -> Layer | None:
    """The layer of a sum or product of which one operand is a parameter, taken as the second.

    other: reads the first operand off the node, where the rules use it. The layer is divisible where
    the parameter is the same for every row of the result, which two single numbers do not have.
    """
    left, right = uses
    use = left or right
    if use is None or (left and right) or use.transposed:
        return None
    parameter = use.of(parameters)
    own = parameter.shape
    divisible = len(own) < len(result_metadata(node)[0].shape) or own[:1] == (1,)
    if other is None:
        return Layer((None, use), (), (None, parameter), divisible, rules)
    return Layer((None, use), (other(node),), (parameter,), divisible, rules)


@operation(aten.add.Tensor, aten.add_.Tensor, node="AddBackward0", reshaping=True)
class Add:
    """y = a + alpha b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Any, b: Any, *, alpha: float = 1) -> Value:
        """t(a) + alpha t(b)."""
        tb = t(b)
        return spread(total(t(a), tb if tb is None or alpha == 1 else tb * alpha), out)

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any, *, alpha: float = 1
    ) -> Any:
        """g, summed over what was broadcast."""
        gb = g if alpha == 1 else g * alpha
        return reduced(g, a) if needs(a) else None, reduced(gb, b) if needs(b) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """A bias, or learned positions, added by hand."""
        return None if _alpha(node) != 1 else _layer(Add, node, uses, parameters)


@operation(aten.sub.Tensor, aten.sub_.Tensor, lacks="parameters are seldom subtracted")
class Subtract:
    """y = a - alpha b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Any, b: Any, *, alpha: float = 1) -> Value:
        """t(a) - alpha t(b)."""
        return Add.tangent(t, out, a, b, alpha=-alpha)


@operation(aten.mul.Tensor, node="MulBackward0", reshaping=True)
class Multiply:
    """y = a b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Any) -> Value:
        """t(a) b + a t(b)."""
        ta, tb = t(a), t(b)
        return spread(total(None if ta is None else ta * b, None if tb is None else a * tb), out)

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any) -> Any:
        """g times the other operand, summed over what was broadcast."""
        return reduced(g * b, a) if needs(a) else None, reduced(g * a, b) if needs(b) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """A gain, or a gate, multiplied by hand."""
        return _layer(Multiply, node, uses, parameters, _right if uses[0] else _left)


@operation(aten._prelu_kernel.default, node="PreluKernelBackward0", reshaping=True)
class ParametricRelu:
    """y = x where x > 0, else w x."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, w: Tensor) -> Value:
        """t(x) times the slope, and t(w) x where x is negative."""
        tx, tw = t(x), t(w)
        by_input = None if tx is None else aten._prelu_kernel_backward(tx, x, w)[0]
        return total(by_input, None if tw is None else x.clamp(max=0) * tw)

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, x: Tensor, w: Tensor) -> Any:
        """g x where x is negative, summed over what was broadcast."""
        by_input = aten._prelu_kernel_backward(g, x, w)[0] if needs(x) else None
        return by_input, reduced(g * x.clamp(max=0), w) if needs(w) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Parameters) -> Layer | None:
        """nn.PReLU, whose slopes are reshaped to those of the channels."""
        return None if uses[0] else _layer(ParametricRelu, node, uses, parameters, _left)


@operation(aten.copy_.default, lacks="parameters are seldom copied into a tensor of the batch")
class Copy:
    """y = b, written into a."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Tensor, non_blocking: bool = False) -> Value:
        """t(b)."""
        return spread(t(b), out)
