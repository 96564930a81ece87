"""Directional derivatives, carried along a forward pass beneath autograd.

For an operation y = op(x_1, x_2, ...) and tangents t(x_k) = d x_k / d alpha along
theta + alpha * direction, the chain rule gives

    t(y) = sum_k  (d op / d x_k) . t(x_k).

A `TangentMode` sees every operation that autograd records, after autograd has recorded it. So the
graph of the pass stays exactly that of plain training, and the tangents are not part of it. A tangent
lives in a cell, an attribute of its tensor, as long as the tensor does.

Tangents are never written in place, since several tensors may share one. A tensor that is written in
place gets a new tangent. All views of it are from then on looked up there, those made before as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..model import Direction, is_spread, local, placed_like
from ..torch_internals import (
    DispatchMode,
    OpOverload,
    base_of,
    is_hooked_copy,
    is_mutable,
    memory_of,
    out_of_place,
)
from .calls import HINT, by_own_formula, is_random, tangent_of_call
from .registry import LINEAR_TANGENTS, STOPS, TANGENTS

_ATTRIBUTE = "_reweigh"  # of a tensor, holds its cell


class TangentCell:
    """What a tensor carries during a pass. Emptied when the pass ends, even where the tensor lives on."""

    __slots__ = ("__weakref__", "born", "owner", "spent", "tangent", "varies")

    def __init__(self, owner: object, tangent: Tensor | None, varies: bool) -> None:
        self.owner = owner
        self.tangent = tangent
        self.varies = varies  # whether the tensor depends on the batch
        self.born: Any = None  # which operation made the tensor, and as which output, if counted
        self.spent = False  # freed early: the pass before did not ask for it after this point


class Outlived(Exception):
    """A tangent was asked for after it had been freed: this pass differs from the one before."""


def cell_of(tensor: Tensor) -> TangentCell | None:
    """The cell of a tensor, from any pass; None where it has none."""
    return tensor.__dict__.get(_ATTRIBUTE)


def drop_cell(tensor: Tensor) -> None:
    """Take the cell off a tensor, if it has one."""
    tensor.__dict__.pop(_ATTRIBUTE, None)


class TangentMode(DispatchMode):
    """Carry tangents through every operation of the block, starting from `direction`."""

    def __init__(self, model: nn.Module, direction: Direction) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self._cells: WeakSet[TangentCell] = WeakSet()
        # Cells point to this token, never to the mode: a tensor that autograd saves and that led
        # back to itself would be a cycle through C++, which the garbage collector cannot see.
        self.token = object()
        self._direction = direction
        self._written: set[int] = set()  # ids of tensors that were written in place

    def __enter__(self) -> TangentMode:
        start = self._direction
        for parameter, value in zip(start.parameters, start.values, strict=True):
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
            drop_cell(kept)

    def forget(self, tangents: Iterable[Tensor]) -> None:
        """Free tangents, also where views of them have become those of other tensors."""
        places = {memory_of(tangent) for tangent in tangents}
        with torch.no_grad():
            for cell in list(self._cells):
                if cell.tangent is not None and memory_of(local(cell.tangent)) in places:
                    cell.tangent, cell.spent = None, True

    def tangent(self, value: Any) -> Tensor | None:
        """The tangent of a tensor, or None where it is zero."""
        if not isinstance(value, Tensor):
            return None
        base = self._written_base(value) if self._written else None
        cell = cell_of(value if base is None else base)
        if cell is None or cell.owner is not self.token:
            return None
        if cell.spent:
            raise Outlived
        if base is None or cell.tangent is None:
            return cell.tangent
        return self._part(cell.tangent, value, base)

    def cell(self, value: Tensor) -> TangentCell | None:
        """The cell in which the tangent of a tensor is found."""
        base = self._written_base(value) if self._written else None
        return cell_of(value if base is None else base)

    def _written_base(self, value: Tensor) -> Tensor | None:
        """The tensor that `value` is a view of, if that was written in place; else None."""
        base = base_of(value)
        # A view that was made without gradients stays without them.
        known = base is not None and id(base) in self._written and value.grad_fn is not None
        return base if known else None

    def attach(self, value: Tensor, tangent: Tensor | None, *, varies: bool = False) -> None:
        """Give a tensor its tangent; `varies` marks what depends on the batch."""
        cell = TangentCell(self.token, tangent, varies)
        value.__dict__[_ATTRIBUTE] = cell
        self._cells.add(cell)

    def varies(self, value: Tensor) -> bool:
        """Whether a tensor was marked as depending on the batch."""
        cell = cell_of(value)
        return cell is not None and cell.owner is self.token and cell.varies

    def redistributed(self, function: Callable[..., Any], value: Any, *rest: Any) -> Any:
        """Run `function(value, *rest)`, by which a tensor becomes a DTensor, is placed otherwise, or comes
        back. All are linear in the tensor, if what is added up between processes is a sum or a mean."""
        tangent = self.tangent(value)
        out = function(value, *rest)
        if tangent is None:
            return out
        for placement in (*_placements(value), *_placements(out)):
            if placement.is_partial() and placement.reduce_op not in ("sum", "avg"):
                raise UnsupportedModelError(
                    f"{self.where()}: processes take the {placement.reduce_op} of what each has, which "
                    f"is not linear, so that tangents do not get through it; expected a sum: use "
                    f"backend='auto'"
                )
        with torch.no_grad():
            if is_spread(
                value
            ):  # a tangent that was computed by other operations may be cut otherwise
                tangent = placed_like(value, tangent)
            self.attach(out, function(tangent, *rest))
        return out

    def derive(self, func: OpOverload, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Run `func` and return its result with the tangents of it (same structure, None for zero)."""
        if func in STOPS:
            return func(*args, **kwargs), None
        if func.is_view or func in LINEAR_TANGENTS:
            self._lay_out_alike(args[0])
        elif func not in TANGENTS:
            if is_mutable(func):
                tangents = self._in_place(func, args, kwargs)
                return func(*args, **kwargs), tangents
            with self._naming_the_place():
                return by_own_formula(func, args, kwargs, self.tangent)
        out = func(*args, **kwargs)
        return out, tangent_of_call(func, args, kwargs, out, self.tangent)

    def assign(self, func: OpOverload, args: Any, out: Any, tangents: Any) -> None:
        """Attach the tangents of a result, in place where the operation was."""
        results = out if isinstance(out, (tuple, list)) else (out,)
        theirs = tangents if isinstance(tangents, (tuple, list)) else (tangents,)
        for value, tangent in zip(results, theirs, strict=False):
            if not isinstance(value, Tensor):
                continue
            if not (is_mutable(func) and value is args[0]):
                self.attach(value, tangent)
                continue
            base = base_of(value)
            if base is None:
                self.attach(value, tangent)
            else:
                self.attach(base, self._with_part(base, value, tangent))
            self._written.add(id(value if base is None else base))

    def _with_part(self, base: Tensor, value: Tensor, tangent: Tensor | None) -> Tensor | None:
        """The tangent of `base` after its view `value` was written, which now has this tangent."""
        old = self.tangent(base)
        if old is None and tangent is None:
            return None
        whole = torch.zeros_like(base) if old is None else torch.empty_like(base).copy_(old)
        part = self._part(whole, value, base)
        if tangent is None:
            part.zero_()
        else:
            part.copy_(tangent)
        return whole

    def _part(self, whole: Tensor, value: Tensor, base: Tensor) -> Tensor:
        """The part of a tangent of `base` that belongs to its view `value`; it shares the memory."""
        if whole.stride() != base.stride():
            whole = torch.empty_like(base).copy_(whole)
        if whole.stride() != base.stride() or value.dtype != base.dtype:
            raise UnsupportedModelError(
                f"a view of a tensor with gaps or of another type is written in place {self.where()}, "
                f"which forward mode does not follow: write it out of place, or use "
                f"backend='double_backward'"
            )
        start = whole.storage_offset() + value.storage_offset() - base.storage_offset()
        return whole.as_strided(value.size(), value.stride(), start)

    def _lay_out_alike(self, value: Tensor) -> None:
        tangent = self.tangent(value)
        if tangent is not None and tangent.stride() != value.stride():
            self.attach(value, torch.empty_like(value).copy_(tangent))

    def _in_place(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """The tangent of an in-place operation: that of its out-of-place twin, before it runs."""
        twin = out_of_place(func)
        if twin is None or is_random(func):
            raise UnsupportedModelError(
                f"{func} {self.where()} overwrites its arguments and has no tangent rule: {HINT}"
            )
        with self._naming_the_place():
            if twin.is_view or twin in LINEAR_TANGENTS:
                return tangent_of_call(twin, args, kwargs, None, self.tangent)
            if twin in TANGENTS:
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


def _placements(value: Any) -> Any:
    return value.placements if is_spread(value) else ()


def autograd_records(func: OpOverload) -> bool:
    """Whether autograd records this call: gradients are on, or it is a custom operation, whose
    forward always runs with them off, or the copy of a tensor that waits for a backward hook."""
    return torch.is_grad_enabled() or func.namespace != "aten" or is_hooked_copy(func)


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Every tensor among the arguments, or the results, of an operation."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
