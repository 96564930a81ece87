"""What the back-ends know about an operation y = op(x, W), x from the batch and W a parameter.

An operation has three facets:

    tangent           t(y) = (d op / d x) . t(x) + (d op / d W) . t(W)
    weight_gradient   (d op / d W)' . g     where g = d loss / d y
    recorded          the layer that a node of autograd's graph stands for

`forward_mode` uses the first. `ghost` uses the third alone if all layers of a model have it, and else
the first two. A facet may be absent. Then something slower is used, which is right for every operation:

    tangent           PyTorch's own forward-mode formula                  (calls.py)
    weight_gradient   the operation is run once more, under autograd      (calls.py)
    recorded          ghost watches the forward pass instead of reading its graph

An operation that lacks a facet says why where it is registered: `lacks="..."`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..torch_internals import OpOverload

aten: Any = torch.ops.aten
Value = Tensor | None  # None where there is none, or where it is zero
Values = Sequence[Value]
Parameters = Sequence[Tensor]
# `t(x)` is the tangent of an argument.
Lookup = Callable[[Any], Value]
# t, result, the operation's own arguments -> the tangent of the result
TangentRule = Callable[..., Any]
# `needs(x)` says whether the gradient for an argument is wanted.
Needs = Callable[[Any], bool]
# needs, gradient at the result, result, the operation's own arguments -> one gradient per argument
GradientRule = Callable[..., Values]


class Use(NamedTuple):
    """An aligned parameter as the argument of an operation: as it is, transposed, or reshaped."""

    place: int  # among the aligned parameters
    transposed: bool
    shape: tuple[int, ...] | None = None  # where it is reshaped: as what the operation sees it

    def of(self, parameters: Sequence[Tensor]) -> Tensor:
        """The parameter as the operation sees it; for one that is not transposed."""
        parameter = parameters[self.place]
        return parameter if self.shape is None else parameter.detach().view(self.shape)


Uses = Sequence[Use | None]  # one per argument that could need a gradient


@dataclass(eq=False)
class Layer:
    """An operation y = op(x, W, b) with parameters, as a node of autograd's graph has recorded it.

    inputs:    of the operation, with the rows of its result. fixed: the rest that it needs.
    divisible: whether it can be cut to some of its rows; not where a parameter has rows of its own.
    rules:     an operation whose other two facets are those of the layer, too. Its arguments are the
               inputs and then `fixed`, and the uses are those of its first arguments.
    """

    uses: tuple[Use | None, ...]
    inputs: tuple[Tensor, ...]
    fixed: tuple[Any, ...] = ()
    divisible: bool = True
    rules: Any = None

    def tangent(self, values: Values, g: Tensor) -> Any:
        """(d op / d W) . V, the result moved along V (one value per use), with x held fixed.

        g is the gradient at the result, for its shape.
        """
        args = (*self.inputs, *self.fixed)
        known = {
            id(x): value if value is None else value.reshape(x.shape)
            for x, value in zip(args, values, strict=False)
        }
        return self.rules.tangent(lambda x: known.get(id(x)), g, *args)

    def gradients(self, g: Tensor) -> Any:
        """(d op / d W)' . g, one gradient per use."""
        args = (*self.inputs, *self.fixed)
        wanted = {id(x) for x, use in zip(args, self.uses, strict=False) if use}
        return self.rules.weight_gradient(lambda x: id(x) in wanted, g, g, *args)


# node, uses, the aligned parameters -> the layer; None where it uses its parameters in another way
RecordedRule = Callable[[Any, Uses, Parameters], Layer | None]


@dataclass(frozen=True)
class LinearTangent:
    """For an operation that is linear in its first argument: `function`, or else the operation itself,
    applied to the tangent of that argument (with the same strides) and to the other arguments."""

    function: Callable[..., Any] | None = None


@dataclass(frozen=True)
class ZeroTangent:
    """For an operation at which the gradient stops."""


@dataclass(frozen=True)
class Absent:
    """Why an operation lacks a facet."""

    reason: str


@dataclass(frozen=True)
class Operation:
    """One operation, or a family that shares its rules; `calls` are the names PyTorch has for it."""

    name: str
    calls: tuple[OpOverload, ...]
    node: str | None  # its name in autograd's graph, where it has a recorded layer
    tangent: TangentRule | LinearTangent | ZeroTangent | Absent
    weight_gradient: GradientRule | Absent
    recorded: RecordedRule | Absent


OPERATIONS: list[Operation] = []
# The same by facet, as the back-ends look them up. The rules of users are here, too.
TANGENTS: dict[OpOverload, TangentRule] = {}
LINEAR_TANGENTS: dict[OpOverload, Callable[..., Any]] = {}
QUESTIONS = {
    torch.ops.prim.device.default
}  # that only tensors without values hand on; no operations
STOPS: set[OpOverload] = {*QUESTIONS}  # and the operations with a zero tangent
RESHAPING: set[str] = set()  # nodes whose recorded layers know reshaped parameters
WEIGHT_GRADIENTS: dict[OpOverload, GradientRule] = {}
RECORDED: dict[str, RecordedRule] = {}


def operation(
    *calls: OpOverload, node: str | None = None, lacks: str | None = None, reshaping: bool = False
) -> Callable[[Any], Any]:
    """Register a class with the attributes `tangent`, `weight_gradient` and `recorded`.

    lacks: why the class has not all of them. `calls` and `node`: as in `Operation`. reshaping: whether
    `recorded` knows parameters that are reshaped first.
    """

    def register(cls: Any) -> Any:
        facets = {}
        for name in ("tangent", "weight_gradient", "recorded"):
            if not hasattr(cls, name) and not lacks:
                raise TypeError(f"{cls.__name__} has no {name}: write it, or say why in lacks=")
            facets[name] = getattr(cls, name, Absent(lacks or ""))
        made = Operation(cls.__name__, calls, node, **facets)
        OPERATIONS.append(made)
        if isinstance(made.tangent, LinearTangent):
            LINEAR_TANGENTS.update({call: made.tangent.function or call for call in calls})
        elif isinstance(made.tangent, ZeroTangent):
            STOPS.update(calls)
        elif not isinstance(made.tangent, Absent):
            _enter(TANGENTS, calls, made.tangent)
        if not isinstance(made.weight_gradient, Absent):
            _enter(WEIGHT_GRADIENTS, calls, made.weight_gradient)
        if node is not None and not isinstance(made.recorded, Absent):
            RECORDED[node] = made.recorded
            if reshaping:
                RESHAPING.add(node)
        return cls

    return register


def tangent_rule(*operations: OpOverload) -> Callable[[TangentRule], TangentRule]:
    """Register the tangent of an operation, for one that PyTorch has no forward-mode formula for.

    >>> @tangent_rule(torch.ops.aten.sin.default)
    ... def sine(t, out, x):
    ...     return t(x) * x.cos()
    """
    return partial(_enter, TANGENTS, operations)


def gradient_rule(*operations: OpOverload) -> Callable[[GradientRule], GradientRule]:
    """Register the weight gradients of an operation: a faster way than running it again."""
    return partial(_enter, WEIGHT_GRADIENTS, operations)


def _enter(table: dict[OpOverload, Any], calls: tuple[OpOverload, ...], rule: Any) -> Any:
    table.update(dict.fromkeys(calls, rule))
    return rule
