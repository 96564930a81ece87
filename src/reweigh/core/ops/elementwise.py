"""Operations element by element, with broadcasting: a + b, a - b, a b, -x, c x, max(x, 0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..torch_internals import result_metadata, saved
from .broadcasting import reduced, spread, total
from .layer import Layer, Use, Uses
from .registry import NO_PARAMETERS, LinearTangent, Lookup, Needs, aten, operation

_alpha, _left, _right = saved("alpha"), saved("self"), saved("other")


class Addend(Layer):
    """y = x + b, broadcast; b is the use that is there. Fixed: the shape of b."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """v."""
        (value,) = (v for v in values if v is not None)
        return value.expand_as(g)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """g, summed over what was broadcast."""
        (shape,) = self.fixed
        return [None if use is None else g.sum_to_size(shape) for use in self.uses]


class Multiplier(Addend):
    """y = x w, broadcast; w is the use that is there. Fixed: the shape of w."""

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """x v."""
        (value,) = (v for v in values if v is not None)
        return self.inputs[0] * value

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """x g, summed over what was broadcast."""
        return super().gradients(g * self.inputs[0])


def _only_parameter(uses: Uses) -> Use | None:
    """The use of the one operand that is a parameter, as it is; None for any other case."""
    left, right = uses
    use = left or right
    return None if use is None or (left and right) or use.transposed else use


def _has_no_rows(parameter: Tensor, node: Any) -> bool:
    """Whether a parameter is the same for every row of the operation's result.

    False, too, where parameter and result are single numbers: there are no rows to cut.
    """
    own = parameter.shape
    return len(own) < len(result_metadata(node)[0].shape) or own[:1] == (1,)


@operation(aten.add.Tensor, aten.add_.Tensor, node="AddBackward0")
class Add:
    """y = a + alpha b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor | None:
        """t(a) + alpha t(b)."""
        tb = t(b)
        return spread(total(t(a), tb if tb is None or alpha == 1 else tb * alpha), out)

    @staticmethod
    def weight_gradient(
        needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any, *, alpha: float = 1
    ) -> Any:
        """g, summed over what was broadcast."""
        return reduced(g, a) if needs(a) else None, reduced(g * alpha, b) if needs(b) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
        """A bias, or learned positions, added by hand."""
        use = _only_parameter(uses)
        if use is None or _alpha(node) != 1:
            return None
        parameter = parameters[use.place]
        return Addend(tuple(uses), (), (parameter.shape,), _has_no_rows(parameter, node))


@operation(aten.sub.Tensor, aten.sub_.Tensor, lacks="parameters are seldom subtracted")
class Subtract:
    """y = a - alpha b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Any, *, alpha: float = 1) -> Tensor | None:
        """t(a) - alpha t(b)."""
        tb = t(b)
        return spread(total(t(a), None if tb is None else tb * -alpha), out)


@operation(aten.mul.Tensor, node="MulBackward0")
class Multiply:
    """y = a b."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, a: Tensor, b: Any) -> Tensor | None:
        """t(a) b + a t(b)."""
        ta, tb = t(a), t(b)
        return spread(total(None if ta is None else ta * b, None if tb is None else a * tb), out)

    @staticmethod
    def weight_gradient(needs: Needs, g: Tensor, out: Tensor, a: Any, b: Any) -> Any:
        """g times the other operand, summed over what was broadcast."""
        return reduced(g * b, a) if needs(a) else None, reduced(g * a, b) if needs(b) else None

    @staticmethod
    def recorded(node: Any, uses: Uses, parameters: Sequence[Tensor]) -> Layer | None:
        """A gain, or a gate, multiplied by hand."""
        use = _only_parameter(uses)
        if use is None:
            return None
        other = _right(node) if uses[0] else _left(node)
        parameter = parameters[use.place]
        rowless = _has_no_rows(parameter, node)
        return Multiplier(tuple(uses), (other,), (parameter.shape,), rowless)


@operation(aten.neg.default, aten.mul.Scalar, aten.div.Scalar, lacks=NO_PARAMETERS)
class Scale:
    """y = c x with a fixed number c."""

    tangent = LinearTangent()


@operation(aten.relu.default, aten.relu_.default, lacks=NO_PARAMETERS)
class Relu:
    """y = max(x, 0)."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor) -> Tensor | None:
        """t(x) where the result is positive, else 0."""
        tx = t(x)
        return None if tx is None else aten.threshold_backward(tx, out, 0)
