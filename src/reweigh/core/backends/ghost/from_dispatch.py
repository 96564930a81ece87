"""Contacts found while the model runs, by watching every operation.

What is computed from parameters alone (a transpose, a cast by autocast, weight normalisation,
embeddings of fixed positions) carries its tangent along, as in forward mode. At the first operation
that also involves the batch the tangent stops and the contact is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ....errors import UnsupportedModelError
from ...model import (
    Batch,
    Direction,
    differentiable_losses,
    leaves,
    tensors_of,
)
from ...ops import (
    STOPS,
    TangentMode,
    autograd_records,
    cell_of,
    drop_cell,
    gradients_of_call,
    tangent_of_call,
    tensors_in,
)
from ...torch_internals import OpOverload, base_of, is_mutable, name_of, version_of
from ..base import TrainPass
from .contact import Origin, Transposed
from .coupling import BY_DATA_CALLS
from .engine import GhostPass, PlaceRecords
from .example_rows import Layout

_aten = torch.ops.aten
_NORMS_OVER_THE_BATCH = {  # operation: position of its `training` argument
    _aten.native_batch_norm.default: 5,
    _aten.cudnn_batch_norm.default: 5,
    _aten.miopen_batch_norm.default: 5,
}
# Operations whose derivatives do not involve the values of their arguments.
_INDIFFERENT = {_aten.add.Tensor, _aten.add_.Tensor, _aten.sub.Tensor, _aten.sub_.Tensor}


def _origin(value: Tensor) -> Origin:
    if value.is_leaf:
        return value
    base, node = base_of(value), value.grad_fn
    if base is not None and base.is_leaf and node is not None and node.name() == "TBackward0":
        not_of_a_slice = base.ndim == 2 and value.shape == base.shape[::-1]
        if not_of_a_slice and value.stride() == base.stride()[::-1]:
            return Transposed(base)
    return get_gradient_edge(value)


def watched_pass(pass_: TrainPass, direction: Direction, records: PlaceRecords) -> GhostPass:
    """The engine for models that use parameters in ways the graph does not show."""
    view = pass_.view
    mode = Meet(view.model, direction, pass_.batch)
    try:
        with view.plain_recurrence(), torch.enable_grad(), mode:
            losses = differentiable_losses(view.model, pass_.loss, pass_.batch, which="train")
        contacts = mode.finish()
        direct = mode.tangent(losses)  # of a part of the loss that does not involve the batch
    finally:
        mode.release()
    reachable = {id(leaf) for leaf in leaves(losses.grad_fn)}
    by_data = any(name_of(func) in BY_DATA_CALLS for func in set(mode.path))
    return GhostPass(
        view, losses, contacts, reachable, tuple(mode.path), records, by_data=by_data, direct=direct
    )


class WatchedContact:
    """One operation y = op(x, W): enough to differentiate it with respect to W, and where y is."""

    def __init__(self, func: OpOverload, args: Any, kwargs: Any, found: dict[int, Tensor]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.out: Any = None  # set when the operation has run
        self.found = found  # tangents of the arguments that come from parameters, by id
        self.edge: GradientEdge | None = None
        involved = list(tensors_in((*args, *kwargs.values())))
        self.sources = [x for x in involved if id(x) in found]
        # Where each source stands in the graph, taken before the operation writes to one of them.
        self.origins = [_origin(x) for x in self.sources]
        self._versions = [] if func in _INDIFFERENT else [(x, version_of(x)) for x in involved]

    @property
    def result(self) -> Tensor:
        """The first output; norms also return their statistics, which no one differentiates."""
        out = self.out[0] if isinstance(self.out, (tuple, list)) else self.out
        assert isinstance(out, Tensor)
        return out

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the result."""
        return tuple(self.result.shape)

    def roots(self) -> tuple[int, ...]:
        """The ids of the parameters that the sources were made of."""
        found: list[int] = []
        for origin in self.origins:
            if isinstance(origin, Transposed):
                found.append(id(origin.parameter))
            elif isinstance(origin, Tensor):
                found.append(id(origin))
            else:
                found += sorted(id(leaf) for leaf in leaves(origin.node))
        return tuple(found)

    def expect_write(self, *, keep: bool) -> None:
        """The operation is about to overwrite its first argument; keep a copy if it is needed."""
        target = self.args[0]
        self._versions = [(x, version) for x, version in self._versions if x is not target]
        if keep:
            copy = target.detach().clone()
            self.args = (copy, *self.args[1:])
            self.sources = [copy if x is target else x for x in self.sources]
            if id(target) in self.found:
                self.found[id(copy)] = self.found.pop(id(target))

    def pin(self) -> None:
        """Remember the place of the result in the graph, before an in-place operation moves it."""
        if self.edge is None and self.result.requires_grad:
            self.edge = get_gradient_edge(self.result)

    def splits(self, layout: Layout) -> bool:
        """Never: the arguments are kept as they were passed."""
        return False

    def only(self, pick: Callable[[Tensor], Tensor]) -> WatchedContact:
        """Not asked for, since it never splits."""
        raise AssertionError("a watched contact does not split")

    def release(self) -> None:
        """Forget where the result is in the graph."""
        self.edge = None

    def forget_result(self) -> None:
        """Keep the shape of the result and free its memory."""
        stand_in = self.result.detach().new_empty(()).expand(self.result.shape)
        if isinstance(self.out, (tuple, list)):
            self.out = (stand_in, *self.out[1:])
        else:
            self.out = stand_in

    def tangent(self, g: Tensor) -> Tensor | None:
        """(d op / d W) . V: the tangent of the result with the batch held fixed."""
        self.require_untouched()
        found = self.found

        def lookup(value: Any) -> Tensor | None:
            return found.get(id(value)) if isinstance(value, Tensor) else None

        args = self.args
        if is_mutable(self.func) and self.func not in _INDIFFERENT:
            copy = args[0].clone()  # the formula may run the operation, which overwrites it
            if id(args[0]) in found:
                found[id(copy)] = found[id(args[0])].clone()
            args = (copy, *args[1:])
        result = tangent_of_call(self.func, args, self.kwargs, self.out, lookup)
        first: Tensor | None = result[0] if isinstance(result, (tuple, list)) else result
        return first

    def scores(
        self, values: Sequence[Tensor | None], g: Tensor, layout: Layout, n: int
    ) -> Tensor | None:
        """< g_i, tangent_i > for every example: [n]; None where there is no tangent. The clean
        gradient is in the tangents already."""
        tangent = self.tangent(g)
        return None if tangent is None else layout.inner(g, tangent, n)

    def gradients(self, cotangent: Tensor) -> list[Tensor | None]:
        """The gradient with respect to each of `sources`, given that at the result."""
        self.require_untouched()
        return gradients_of_call(
            self.func, self.args, self.kwargs, self.out, cotangent, self.sources
        )

    def require_untouched(self) -> None:
        """Raise if an argument was written since it was used."""
        if any(version_of(x) != version for x, version in self._versions):
            raise UnsupportedModelError(
                f"an input of {self.func} was overwritten in place after it was used: "
                f"make that operation out of place, or use backend='forward_mode'"
            )


class Meet(TangentMode):
    """Follow tangents through what does not depend on the batch; record where they meet it."""

    def __init__(self, model: nn.Module, direction: Direction, train: Batch) -> None:
        super().__init__(model, direction)
        self.contacts: list[WatchedContact] = []
        self.path: list[OpOverload] = []  # every operation, in order
        self._leaves = list(tensors_of(train))

    def __enter__(self) -> Meet:
        super().__enter__()
        for leaf in self._leaves:
            self.attach(leaf, None, varies=True)
        return self

    def release(self) -> None:
        """Forget every tangent and mark."""
        super().release()
        for leaf in self._leaves:
            drop_cell(leaf)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        self.path.append(func)
        found: dict[int, Tensor] = {}
        varies = False
        for value in tensors_in((*args, *kwargs.values())):
            cell = cell_of(value)
            if cell is not None and cell.owner is self.token:
                varies = varies or cell.varies
            tangent = self.tangent(value)
            if tangent is not None:
                found[id(value)] = tangent
        if is_mutable(func):
            self._pin_aliases(args[0])
        if not found or not autograd_records(func) or func in STOPS:
            out = func(*args, **kwargs)
        elif not varies:
            out, tangents = self.derive(func, args, kwargs)
            self.assign(func, args, out, tangents)
            return out
        else:
            out = self._contact(func, args, kwargs, found)
        if varies:
            self._mark(out)
        return out

    def finish(self) -> list[WatchedContact]:
        """The contacts that matter to the loss, each pinned to its place in the graph."""
        for contact in self.contacts:
            contact.pin()
            contact.forget_result()
        return [contact for contact in self.contacts if contact.edge is not None]

    def _contact(self, func: OpOverload, args: Any, kwargs: Any, found: dict[int, Tensor]) -> Any:
        place = _NORMS_OVER_THE_BATCH.get(func)
        # A batch of one is how InstanceNorm calls it, with the examples among the channels.
        if place is not None and args[place] and args[0].shape[0] > 1:
            raise UnsupportedModelError(
                f"train-mode batch normalisation {self.where()} couples the examples of a batch, "
                f"which ghost cannot follow: use backend='forward_mode', or GroupNorm"
            )
        if func is _aten.embedding.default and len(args) > 4 and args[4]:
            raise UnsupportedModelError(
                f"the embedding {self.where()} has sparse gradients, which ghost cannot assemble: "
                f"use backend='forward_mode', or sparse=False"
            )
        contact = WatchedContact(func, args, kwargs, found)
        if is_mutable(func):
            contact.expect_write(keep=func not in _INDIFFERENT)
        contact.out = func(*args, **kwargs)
        self.contacts.append(contact)
        return contact.out

    def _pin_aliases(self, written: Any) -> None:
        if isinstance(written, Tensor) and self.contacts:
            root = _root(written)
            for contact in self.contacts:
                if contact.edge is None and _root(contact.result) is root:
                    contact.pin()

    def _mark(self, out: Any) -> None:
        for value in tensors_in(out if isinstance(out, (tuple, list)) else (out,)):
            self.attach(value, None, varies=True)
            base = base_of(value)
            if base is not None and not self.varies(base):
                self.attach(base, self.tangent(base), varies=True)


def _root(tensor: Tensor) -> Tensor:
    """The tensor that this one is a view of, or itself."""
    base = base_of(tensor)
    return tensor if base is None else base
