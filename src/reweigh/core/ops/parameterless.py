"""Operations without parameters: parts, sums and pools of a tensor, functions of each element, and where
gradients stop.

Views are not listed: their tangent is that view of the tangent.
"""

from typing import Any

from torch import Tensor

from .registry import LinearTangent, Lookup, Value, ZeroTangent, aten, operation

NO_PARAMETERS = "it has no parameters of its own, and seldom takes one with the batch"


@operation(
    aten.neg.default, aten.mul.Scalar, aten.div.Scalar,
    aten._unsafe_view.default, aten.clone.default, aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default, aten.index_select.default, aten.gather.default,
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim,
    aten.avg_pool2d.default, aten._adaptive_avg_pool2d.default, aten.upsample_nearest2d.vec,
    lacks=NO_PARAMETERS,
)  # fmt: skip
class LinearMap:
    """y = c x; or elements of x in a new tensor; or sums or means of them, over windows, too."""

    tangent = LinearTangent()


def _cast(tangent: Tensor, **options: Any) -> Any:
    """The tangent, cast alike; integers have none."""
    kind = options.get("dtype")
    if kind is None or kind.is_floating_point or kind.is_complex:
        return aten._to_copy(tangent, **options)
    return None


@operation(aten._to_copy.default, lacks=NO_PARAMETERS)
class Cast:
    """y = x in another type, on another device or laid out in another way."""

    tangent = LinearTangent(_cast)


@operation(aten.constant_pad_nd.default, lacks=NO_PARAMETERS)
class Pad:
    """y = x with a constant around it, whose derivative is zero."""

    tangent = LinearTangent(lambda tangent, pad, value=0: aten.constant_pad_nd(tangent, pad))


def _packed(tangent: Tensor, lengths: Tensor, batch_first: bool) -> Any:
    """The tangent of the packed rows; the number of sequences per step has none."""
    rows, _ = aten._pack_padded_sequence(tangent, lengths, batch_first)
    return rows, None


@operation(aten._pack_padded_sequence.default, lacks=NO_PARAMETERS)
class Pack:
    """y = the steps of sequences of different lengths, without those of padding."""

    tangent = LinearTangent(_packed)


@operation(aten.relu.default, aten.relu_.default, lacks=NO_PARAMETERS)
class Relu:
    """y = max(x, 0)."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor) -> Tensor | None:
        """t(x) where the result is positive, else 0."""
        tx = t(x)
        return None if tx is None else aten.threshold_backward(tx, out, 0)


@operation(aten.sigmoid.default, aten.sigmoid_.default, lacks=NO_PARAMETERS)
class Sigmoid:
    """y = 1 / (1 + exp(-x))."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor) -> Tensor | None:
        """t(x) y (1 - y)."""
        tx = t(x)
        return None if tx is None else aten.sigmoid_backward(tx, out)


@operation(aten.tanh.default, aten.tanh_.default, lacks=NO_PARAMETERS)
class Tanh:
    """y = tanh(x)."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor) -> Tensor | None:
        """t(x) (1 - y^2)."""
        tx = t(x)
        return None if tx is None else aten.tanh_backward(tx, out)


def _slope_of(backward: Any) -> Any:
    """The tangent of a function of each element, whose backward kernel multiplies by its slope."""

    def tangent(t: Lookup, out: Tensor, x: Tensor, **options: Any) -> Value:
        tx = t(x)
        return None if tx is None else backward(tx, x, **options)

    return staticmethod(tangent)


@operation(aten.gelu.default, lacks=NO_PARAMETERS)
class Gelu:
    """y = x Phi(x)."""

    tangent = _slope_of(aten.gelu_backward)


@operation(aten.silu.default, lacks=NO_PARAMETERS)
class Silu:
    """y = x sigmoid(x)."""

    tangent = _slope_of(aten.silu_backward)


@operation(aten._softmax.default, lacks=NO_PARAMETERS)
class Softmax:
    """y = exp(x) / sum exp(x)."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, dim: int, half_to_float: bool) -> Value:
        """y (t(x) - sum y t(x)): the derivative is symmetric, so the backward kernel applies it."""
        tx = t(x)
        if tx is None:
            return None
        kind = x.dtype if not half_to_float else out.dtype
        moved: Tensor = aten._softmax_backward_data(tx.to(out.dtype), out, dim, kind)
        return moved


@operation(aten._log_softmax.default, lacks=NO_PARAMETERS)
class LogSoftmax:
    """y = x - log sum exp(x)."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, dim: int, half_to_float: bool) -> Value:
        """t(x) - sum exp(y) t(x)."""
        tx = t(x)
        return None if tx is None else tx - out.exp().mul_(tx).sum(dim, keepdim=True)


@operation(aten.max_pool2d_with_indices.default, lacks=NO_PARAMETERS)
class MaxPool:
    """y = the largest of each window, and where it was."""

    @staticmethod
    def tangent(t: Lookup, out: tuple[Tensor, Tensor], x: Tensor, *geometry: Any) -> Any:
        """t(x) at the places of the maxima."""
        tx, (_, where) = t(x), out
        if tx is None:
            return None
        return tx.flatten(-2).gather(-1, where.flatten(-2)).view_as(where), None


@operation(
    aten.detach.default, aten.detach_.default, aten.bernoulli.default, aten.bernoulli.p,
    aten.rand_like.default, aten.randn_like.default, aten.randint_like.default,
    lacks=NO_PARAMETERS,
)  # fmt: skip
class NoDerivative:
    """y has no derivative: x was detached (by autograd, too, for what it saves), or only its shape or
    its probabilities matter."""

    tangent = ZeroTangent()
