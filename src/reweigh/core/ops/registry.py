"""What the back-ends know about an operation y = op(x, W), x from the batch and W a parameter.

An operation has three facets:

    tangent           t(y) = (d op / d x) . t(x) + (d op / d W) . t(W)
    weight_gradient   (d op / d W)' . g     where g = d loss / d y
    recorded          the layer that a node of autograd's graph stands for

`forward_mode` uses the first, ghost's way by dispatch the first two, ghost's way by the graph the
third alone. A facet may be absent. Then something slower that is right for every operation is used:

    tangent           PyTorch's own forward-mode formula                        (tangent.py)
    weight_gradient   the operation is run once more, under autograd            (weight_gradient.py)
    recorded          no graph with such a layer is read; ghost goes by dispatch

Why a facet is absent is said where the operation is registered: `recorded = Absent("...")`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..model.torch_internals import OpOverload
from .layer import Layer, Uses

# `t(x)` is the tangent of an argument, None where that is zero.
Lookup = Callable[[Any], Tensor | None]
# t, result, the operation's own arguments -> the tangent of the result
TangentRule = Callable[..., Any]
# `needs(x)` says whether the gradient for an argument is wanted.
Needs = Callable[[Any], bool]
# needs, gradient at the result, result, the operation's own arguments -> one gradient per argument
GradientRule = Callable[..., Sequence[Tensor | None]]
# node, uses, the aligned parameters -> the layer; None where it uses its parameters in another way
RecordedRule = Callable[[Any, Uses, Sequence[Tensor]], Layer | None]


@dataclass(frozen=True)
class LinearTangent:
    """Of an operation that is linear in its first argument: `function` of the tangent of that (laid
    out as the argument itself) and of the other arguments. Without one, the operation itself."""

    function: Callable[..., Any] | None = None


@dataclass(frozen=True)
class ZeroTangent:
    """Of an operation at which the gradient stops."""


@dataclass(frozen=True)
class Absent:
    """Why an operation lacks a facet."""

    reason: str


NO_PARAMETERS = Absent(
    "it has no parameters of its own, so one is seldom its argument; if so, autograd is asked"
)


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
# The same by facet, as the back-ends look them up. Rules of users are in here too.
TANGENTS: dict[OpOverload, TangentRule] = {}
LINEAR: dict[OpOverload, Callable[..., Any]] = {}
STOPS: set[OpOverload] = set()  # those with a zero tangent
WEIGHT_GRADIENTS: dict[OpOverload, GradientRule] = {}
RECORDED: dict[str, RecordedRule] = {}


def operation(*calls: OpOverload, node: str | None = None) -> Callable[[Any], Any]:
    """Register a class whose attributes are the three facets (functions are static methods).

    `node`: the name of the operation in autograd's graph, for one with a recorded layer.
    """

    def register(facets: Any) -> Any:
        made = Operation(
            facets.__name__, calls, node, facets.tangent, facets.weight_gradient, facets.recorded
        )
        OPERATIONS.append(made)
        if isinstance(made.tangent, LinearTangent):
            LINEAR.update({call: made.tangent.function or call for call in calls})
        elif isinstance(made.tangent, ZeroTangent):
            STOPS.update(calls)
        elif not isinstance(made.tangent, Absent):
            tangent_rule(*calls)(made.tangent)
        if not isinstance(made.weight_gradient, Absent):
            gradient_rule(*calls)(made.weight_gradient)
        if node is not None and not isinstance(made.recorded, Absent):
            RECORDED[node] = made.recorded
        return facets

    return register


def tangent_rule(*operations: OpOverload) -> Callable[[TangentRule], TangentRule]:
    """Register the tangent of an operation, for one that PyTorch has no forward-mode formula for.

    >>> @tangent_rule(torch.ops.aten.sin.default)
    ... def sine(t, out, x):
    ...     return t(x) * x.cos()
    """

    def register(rule: TangentRule) -> TangentRule:
        TANGENTS.update(dict.fromkeys(operations, rule))
        return rule

    return register


def gradient_rule(*operations: OpOverload) -> Callable[[GradientRule], GradientRule]:
    """Register the weight gradients of an operation: a faster way than running it again."""

    def register(rule: GradientRule) -> GradientRule:
        WEIGHT_GRADIENTS.update(dict.fromkeys(operations, rule))
        return rule

    return register
