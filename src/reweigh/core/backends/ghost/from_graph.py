"""Contacts read off the graph that a plain forward pass has recorded.

Autograd's own record of a pass says which operations used which parameters and keeps their inputs, so
where every parameter is used by a layer that `core/ops` knows, nothing needs to be watched while
the model runs: the forward pass of ghost is then the plain one, and the graph is read afterwards, at
a few microseconds a node. Where some parameter is used in another way, `read` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from ...clean.low_rank import Values
from ...model.device import in_type
from ...ops import RECORDED, Layer, Linear, Use
from .example_rows import Layout

_LEAF, _TRANSPOSE, _CAST = "torch::autograd::AccumulateGrad", "TBackward0", "ToCopyBackward0"


@dataclass(eq=False)
class RecordedContact:
    """A layer at its place in the graph; the same questions as a `contacts.Contact` answers."""

    layer: Layer
    edge: GradientEdge | None
    shape: tuple[int, ...]
    parameters: Sequence[Tensor]
    func: str

    @property
    def sources(self) -> list[Tensor]:
        """The parameters, for messages."""
        return [self.parameters[use.place] for use in self.layer.uses if use]

    @property
    def origins(self) -> list[Tensor | None]:
        """The parameter behind each gradient."""
        return [None if use is None else self.parameters[use.place] for use in self.layer.uses]

    def roots(self) -> tuple[int, ...]:
        """The ids of the parameters."""
        return tuple(map(id, self.sources))

    def tangent(self, values: Sequence[Tensor], g: Tensor) -> Tensor:
        """The tangent of the result with the batch held fixed, in the precision of `g`."""
        used = (None if use is None else values[use.place] for use in self.layer.uses)
        return self.layer.tangent([None if v is None else in_type(v, g.dtype) for v in used], g)

    def scores(self, values: Sequence[Tensor], g: Tensor, layout: Layout, n: int) -> Tensor:
        """< g_i, tangent_i > for every example: [n]; `values`: the clean gradient."""
        if isinstance(values, Values) and isinstance(self.layer, Linear) and layout.dim == 0:
            rows = self._factored(values, g)
            if rows is not None:
                return layout.gather(rows, n)
        return layout.inner(g, self.tangent(values, g), n)

    def _factored(self, values: Values, g: Tensor) -> Tensor | None:
        """< g, tangent > row by row without multiplying V out: sum_k (c_k . g) (b_k . x + 1)."""
        shift, turn = self.layer.uses
        factors = None if turn is None else values.factors(turn.place)
        if turn is None or factors is None or factors.inputs is None:
            return None
        if factors.inputs.dtype != g.dtype or factors.transposed != turn.transposed:
            return None
        # The few rows first: the library multiplies these in half the time of their transpose.
        products = factors.inputs @ self.layer.inputs[0].t()
        if shift is not None:
            beside = values.factors(shift.place)
            if beside is None or beside.gradients is not factors.gradients:
                return None
            products += 1
        rows: Tensor = torch.linalg.vecdot(products, factors.gradients @ g.t(), dim=0)
        return rows

    def splits(self, layout: Layout) -> bool:
        """Whether it can be cut down to the rows of some examples."""
        rows = self.shape[:1]
        return layout.dim == 0 and all(x.shape[:1] == rows for x in self.layer.inputs)

    def only(self, pick: Callable[[Tensor], Tensor]) -> RecordedContact:
        """The contact on some of its rows."""
        layer = self.layer.only(pick)
        return RecordedContact(layer, self.edge, self.shape, self.parameters, self.func)

    def leave_graph(self) -> None:
        """Let go of everything but the layer's own inputs."""
        self.edge = None
        self.layer = self.layer.only(Tensor.detach)

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """One gradient per origin, given that at the result."""
        found = self.layer.gradients(g)
        return [
            None if part is None or origin is None else in_type(part, origin.dtype)
            for part, origin in zip(found, self.origins, strict=True)
        ]


@dataclass(frozen=True)
class Reading:
    """What a graph says: its contacts, the leaves it ends in (by id), and its shape, to compare."""

    contacts: list[RecordedContact]
    leaves: set[int]
    path: tuple[Any, ...]


def read(losses: Tensor, parameters: Sequence[Tensor]) -> Reading | None:
    """The contacts of the pass that made `losses`; None if a parameter is used in an unknown way."""
    places = {id(p): i for i, p in enumerate(parameters)}
    number: dict[Any, int] = {}
    uses: dict[Any, Use | None] = {}
    path: list[Any] = []
    leaves: set[int] = set()
    contacts: list[RecordedContact] = []
    stack = [losses.grad_fn]
    while stack:
        node: Any = stack.pop()
        if node in number:
            continue
        number[node] = len(number)
        name = node.name()
        following = node.next_functions
        path.append(name)
        found: list[Use | None] = []
        for child, output in following:
            if child is None:
                found.append(None)
                path.append(-1)
                continue
            if child not in uses:
                uses[child] = _use(child, places, leaves, path)
            use = uses[child]
            found.append(use)
            path.append((use, output) if use else (number.get(child), output))
            if use is None:
                stack.append(child)
        if any(found):
            contact = _contact(node, name, found, parameters)
            if contact is None:
                return None
            contacts.append(contact)
    return Reading(contacts, leaves, tuple(path))


def _use(node: Any, places: dict[int, int], leaves: set[int], path: list[Any]) -> Use | None:
    """The aligned parameter that a node hands on, as it is, transposed or cast; None for any other."""
    transposed = False
    name = node.name()
    while name in (_TRANSPOSE, _CAST):
        transposed ^= name == _TRANSPOSE
        ((node, _),) = node.next_functions
        name = node.name()
        path.append(name)
    if name != _LEAF:
        return None
    leaves.add(id(node.variable))
    place = places.get(id(node.variable))
    return None if place is None else Use(place, transposed)


def _contact(
    node: Any, name: str, uses: Sequence[Use | None], parameters: Sequence[Tensor]
) -> RecordedContact | None:
    rule = RECORDED.get(name)
    layer = None if rule is None else rule(node, uses, parameters)
    if layer is None:
        return None
    shape = tuple(node._input_metadata[0].shape)
    return RecordedContact(layer, GradientEdge(node, 0), shape, parameters, name)
