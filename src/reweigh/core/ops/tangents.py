"""Directional derivatives, carried along a forward pass beneath autograd.

For an operation y = op(x_1, x_2, ...) and tangents t(x_k) = d x_k / d alpha along
theta + alpha * direction, the chain rule gives

    t(y) = sum_k  (d op / d x_k) . t(x_k).

A `TangentMode` sees every operation that autograd records, after autograd has recorded it, so the
graph of the pass stays exactly that of plain training, and the tangents are not part of it. Rules
for the operations that matter stand in `tangent_rules.py`; any other operation is differentiated by
PyTorch's own forward-mode formula for it. A tangent lives as long as the tensor it belongs to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch
import torch.autograd.forward_ad as fwd
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import UnsupportedModelError
from ..model.parameters import Direction

# A rule gets `t`, which looks up the tangent of an argument (None for zero), then the result of the
# operation, then the operation's own arguments; it returns the tangent of the result.
Lookup = Callable[[Any], Tensor | None]
Rule = Callable[..., Any]

RULES: dict[OpOverload, Rule] = {}


def tangent_rule(*operations: OpOverload) -> Callable[[Rule], Rule]:
    """Register the tangent of an operation, for one that PyTorch has no forward-mode formula for.

    >>> @tangent_rule(torch.ops.aten.sin.default)
    ... def sine(t, out, x):
    ...     return t(x) * x.cos()
    """

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


class _Cell:
    """What a tensor carries during a pass; emptied when the pass ends, whoever still holds it."""

    __slots__ = ("__weakref__", "born", "owner", "spent", "tangent", "varies")

    def __init__(self, owner: object, tangent: Tensor | None, varies: bool) -> None:
        self.owner = owner
        self.tangent = tangent
        self.varies = varies
        self.born: Any = None  # the operation and output it came from, where a pass keeps count
        self.spent = False  # freed early, in the belief that nothing would ask again


class Outlived(Exception):
    """A tangent was asked for after what had looked like its last use: the pass differs from before."""


class TangentMode(TorchDispatchMode):
    """Carry tangents through every operation of the block, starting from `direction`."""

    def __init__(self, model: nn.Module, direction: Direction) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self._cells: WeakSet[_Cell] = WeakSet()
        # Cells point to this token, never to the mode: a tensor that autograd saves and that led
        # back to itself would be a cycle through C++, which the garbage collector cannot see.
        self.token = object()
        self._direction = direction

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps the handler against compilation, at 10 us a call; compiled code does
        # not run under this mode in the first place.
        return False

    def __enter__(self) -> TangentMode:
        for parameter, value in zip(
            self._direction.parameters, self._direction.values, strict=True
        ):
            self.attach(parameter, value)
        # Autocast may hold copies of the parameters made before they had tangents.
        torch.clear_autocast_cache()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def release(self) -> None:
        """Forget every tangent; saved activations would otherwise keep theirs until backward."""
        for cell in list(self._cells):
            cell.tangent = None
        self._cells.clear()
        for kept in (*self._direction.parameters, *self.model.buffers()):
            kept.__dict__.pop("_reweigh", None)

    def tangent(self, value: Any) -> Tensor | None:
        """The tangent of a tensor, or None where it is zero."""
        if isinstance(value, Tensor):
            cell = value.__dict__.get("_reweigh")
            if cell is not None and cell.owner is self.token:
                if cell.spent:
                    raise Outlived
                return cell.tangent  # type: ignore[no-any-return]
        return None

    def attach(self, value: Tensor, tangent: Tensor | None, *, varies: bool = False) -> None:
        """Give a tensor its tangent; `varies` marks what depends on the batch."""
        cell = _Cell(self.token, tangent, varies)
        value._reweigh = cell  # type: ignore[attr-defined]
        self._cells.add(cell)

    def varies(self, value: Tensor) -> bool:
        """Whether a tensor was marked as depending on the batch."""
        cell = value.__dict__.get("_reweigh")
        return cell is not None and cell.owner is self.token and cell.varies

    def derive(self, func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Run `func` and return its result with the tangents of it (same structure, None for zero)."""
        if func in STOPS:
            return func(*args, **kwargs), None
        if func.is_view or func in ALIKE:
            self._lay_out_alike(args[0])
        elif func not in RULES:
            if func._schema.is_mutable:
                tangents = self._in_place(func, args, kwargs)
                return func(*args, **kwargs), tangents
            with self._naming_the_place():
                return by_own_formula(func, args, kwargs, self.tangent)
        out = func(*args, **kwargs)
        return out, tangent_of_call(func, args, kwargs, out, self.tangent)

    def assign(self, func: OpOverload, args: Any, out: Any, tangents: Any) -> None:
        """Attach the tangents of a result, in place where the operation was."""
        results = out if isinstance(out, (tuple, list)) else (out,)
        found = tangents if isinstance(tangents, (tuple, list)) else (tangents,)
        for value, tangent in zip(results, found, strict=False):
            if not isinstance(value, Tensor):
                continue
            if func._schema.is_mutable and value is args[0] and value._is_view():
                self._write_through(func, value, tangent)
            else:
                self.attach(value, tangent)

    def _write_through(self, func: OpOverload, value: Tensor, tangent: Tensor | None) -> None:
        # An in-place write to a view changes its base, so the base's tangent must change as well.
        old = self.tangent(value)
        if old is None and tangent is None:
            return
        if old is None or not (old._is_view() or value._base is None):
            raise UnsupportedModelError(
                f"{func} writes in place into a view {self.where()}, which forward mode does not "
                f"follow: write it out of place, or use backend='double_backward'"
            )
        old.copy_(torch.zeros_like(old) if tangent is None else tangent)

    def _lay_out_alike(self, value: Tensor) -> None:
        tangent = self.tangent(value)
        if tangent is not None and tangent.stride() != value.stride():
            self.attach(value, torch.empty_like(value).copy_(tangent))

    def _in_place(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """The tangent of an in-place operation: that of its out-of-place twin, before it runs."""
        packet, overload = func._schema.name.removeprefix("aten::"), func._overloadname
        twin = getattr(getattr(torch.ops.aten, packet.removesuffix("_"), None), overload, None)
        if twin is None or not packet.endswith("_") or _random(func):
            raise UnsupportedModelError(
                f"{func} {self.where()} overwrites its arguments and has no tangent rule: add one "
                f"with reweigh.tangent_rule, or use backend='double_backward'"
            )
        with self._naming_the_place():
            if twin in RULES:
                return tangent_of_call(twin, args, kwargs, twin(*args, **kwargs), self.tangent)
            return by_own_formula(twin, args, kwargs, self.tangent)[1]

    @contextmanager
    def _naming_the_place(self) -> Iterator[None]:
        try:
            yield
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{self.where()}: {error}") from error

    def where(self) -> str:
        """The innermost module of the model on the call stack, for error messages."""
        names = {id(module): name for name, module in self.model.named_modules()}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and names.get(id(owner)):
                return f"in {names[id(owner)]!r} ({type(owner).__name__})"
            frame = frame.f_back
        return f"in {type(self.model).__name__}"


def tangent_of_call(func: OpOverload, args: Any, kwargs: Any, out: Any, t: Lookup) -> Any:
    """The tangent of `out = func(*args, **kwargs)`, given those of the arguments."""
    if func.is_view or func in ALIKE:
        return func(t(args[0]), *args[1:], **kwargs)
    rule = RULES.get(func)
    if rule is not None:
        return rule(t, out, *args, **kwargs)
    return by_own_formula(func, args, kwargs, t)[1]


def by_own_formula(func: OpOverload, args: Any, kwargs: Any, t: Lookup) -> tuple[Any, Any]:
    """Result and tangent of an operation by PyTorch's own forward-mode formula for it."""
    if _random(func):
        raise UnsupportedModelError(
            f"{func} draws random numbers and has no tangent rule: add one with "
            f"reweigh.tangent_rule, or use backend='double_backward'"
        )
    if func.namespace != "aten":  # where a missing formula would read as a derivative of zero
        raise UnsupportedModelError(
            f"{func} is a custom operation without a tangent rule: add one with "
            f"reweigh.tangent_rule, or use backend='double_backward'"
        )
    try:
        with _above_the_handler(), torch.no_grad(), fwd.dual_level():
            out = func(*_dual(args, t), **{name: _dual(value, t) for name, value in kwargs.items()})
            if isinstance(out, (tuple, list)):
                return out, [_tangent_of(value) for value in out]
            return out, _tangent_of(out)
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"{func} has no forward-mode formula: add one with reweigh.tangent_rule, "
            f"or use backend='double_backward'"
        ) from error


@contextmanager
def _above_the_handler() -> Iterator[None]:
    """Switch on again what a dispatch mode's handler runs beneath: autograd, where the formulas
    are, and the symbolic zeros and conjugates they use (a kernel would read those as memory)."""
    keys = torch._C.DispatchKey
    with ExitStack() as stack:
        for key in (
            keys.AutogradFunctionality,
            keys.ADInplaceOrView,
            keys.ZeroTensor,
            keys.Conjugate,
            keys.Negative,
        ):
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        yield


def _dual(value: Any, t: Lookup) -> Any:
    if isinstance(value, (tuple, list)):
        return [_dual(item, t) for item in value]
    tangent = t(value)
    if tangent is None:
        return value.detach() if isinstance(value, Tensor) else value
    return fwd.make_dual(value.detach(), tangent.to(value.dtype))


def recorded(func: OpOverload) -> bool:
    """Whether autograd records this call: gradients are on, or it is a custom operation, whose
    forward always runs with them off."""
    return torch.is_grad_enabled() or func.namespace != "aten"


def _random(func: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _tangent_of(value: Any) -> Tensor | None:
    return fwd.unpack_dual(value).tangent if isinstance(value, Tensor) else None


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Every tensor among the arguments of an operation."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors(value)


_aten = torch.ops.aten
# Linear in their one tensor and applied to the tangent as they are.
ALIKE = {
    _aten._unsafe_view.default,
    _aten.clone.default,
    _aten._to_copy.default,
    _aten.unsafe_split.Tensor,
    _aten.unsafe_chunk.default,
    _aten.neg.default,
    _aten.sum.default,
    _aten.sum.dim_IntList,
    _aten.mean.default,
    _aten.mean.dim,
    _aten.mul.Scalar,
    _aten.div.Scalar,
    _aten.constant_pad_nd.default,
    _aten.index_select.default,
    _aten.gather.default,
    _aten.avg_pool2d.default,
    _aten._adaptive_avg_pool2d.default,
    _aten.upsample_nearest2d.vec,
}
# Where the gradient stops: by the user's wish (also what autograd calls on what it saves), or because
# only the shape of the argument matters.
STOPS = {
    _aten.detach.default,
    _aten.detach_.default,
    _aten.bernoulli.default,
    _aten.bernoulli.p,
    _aten.rand_like.default,
    _aten.randn_like.default,
    _aten.randint_like.default,
}
