"""Contacts read off the graph that a plain forward pass has recorded.

Autograd's own record of a pass says which operations used which parameters, and keeps their inputs.
So where every parameter is used by a layer that `core/ops` can read, nothing needs to be watched
while the model runs: the forward pass of ghost is then the plain one, and its graph is read
afterwards, at a few microseconds per node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from ...clean import PartlyFactored, collected, paying
from ...model import (
    REENTRANT_CHECKPOINT,
    Direction,
    ModelView,
    differentiable_losses,
    hidden_parameters,
)
from ...ops import RECORDED, RESHAPING, Layer, Linear, Use
from ...proof import MOST_RECORDS, Records, same_gradient
from ...torch_internals import result_metadata, version_of
from ..base import TrainPass
from .coupling import BY_DATA_NODES
from .engine import GhostPass, PlaceRecords
from .example_rows import Layout

_LEAF, _TRANSPOSE, _CAST = "torch::autograd::AccumulateGrad", "TBackward0", "ToCopyBackward0"
_RESHAPES = {"ViewBackward0", "UnsqueezeBackward0"}  # the same elements in the same order
_HANDING_ON = {_TRANSPOSE, _CAST, *_RESHAPES}


def plain_pass(pass_: TrainPass, direction: Direction, records: PlaceRecords) -> GhostPass | None:
    """The engine for models whose layers are all known: a plain forward."""
    view = pass_.view
    with view.plain_recurrence(), torch.enable_grad():
        losses = differentiable_losses(view.model, pass_.loss, pass_.batch, which="train")
    with view.beside_the_step():  # reading what a checkpoint has not saved computes it anew
        reading = read(losses, direction.parameters)
    if reading is None:  # a parameter is used in an unknown way
        return None
    return reading.ghost_pass(view, losses, records)


class CleanFactors:
    """The clean gradient from the graph of the clean pass, with factors in place of large products.

    One backward to the results of the layers. Linear layers keep their two factors where those are
    smaller than the product (core/clean/low_rank.py); all else is multiplied out. Examples may be
    coupled, since only their mean is differentiated.
    """

    def __init__(self) -> None:
        self._gains: dict[int, bool] = {}  # by m: whether some layer gains
        self._records: Records[bool] = Records()  # by path: whether the gradient is autograd's

    def gradient(
        self, mean_loss: Tensor, m: int, theta: Sequence[nn.Parameter]
    ) -> PartlyFactored | None:
        """The gradient of the mean loss of m examples; None, and the graph as it is, where no layer
        gains. Compared with autograd's own at the first use, and when due."""
        if not self._gains.get(m, True):
            return None
        reading = read(mean_loss, theta)
        contacts = [] if reading is None else reading.contacts
        layers = [contact.layer for contact in contacts]
        record = None if reading is None else self._records.get(reading.path)
        gains = bool(paying(layers, theta)) and (record is None or record.value)
        if m not in self._gains or not gains:
            if len(self._gains) > MOST_RECORDS:
                self._gains.clear()
            self._gains[m] = gains
        if not gains or reading is None:
            return None
        due = record is None or record.uses + 1 >= record.next_look
        outputs = torch.autograd.grad(
            mean_loss,
            [contact.edge for contact in contacts if contact.edge is not None],
            retain_graph=due,
            allow_unused=True,
        )
        values = collected(layers, outputs, theta)
        if record is not None and not due:
            record.uses += 1
            return values
        right = same_gradient(values.products(), mean_loss, theta)
        self._records.looked(reading.path, right)
        return values if right else None


@dataclass(eq=False)
class RecordedContact:
    """A layer at its place in the graph: a `Contact`."""

    layer: Layer
    edge: GradientEdge | None
    shape: tuple[int, ...]
    parameters: Sequence[Tensor]
    func: str
    versions: tuple[int, ...] = ()  # of the layer's inputs when they were taken out of the graph

    @property
    def sources(self) -> list[Tensor]:
        """The parameters, for messages."""
        return [self.parameters[use.place] for use in self.layer.uses if use]

    @property
    def origins(self) -> list[Tensor | None]:
        """The parameter that each gradient belongs to."""
        return [None if use is None else self.parameters[use.place] for use in self.layer.uses]

    def roots(self) -> tuple[int, ...]:
        """The ids of the parameters."""
        return tuple(map(id, self.sources))

    def scores(self, values: Sequence[Tensor | None], g: Tensor, layout: Layout, n: int) -> Tensor:
        """< g_i, tangent_i > per example, [n]; values: the clean gradient."""
        if (
            isinstance(values, PartlyFactored)
            and isinstance(self.layer, Linear)
            and layout.dim == 0
            and (rows := self._from_factors(values, g)) is not None
        ):
            return layout.gather(rows, n)
        used = (None if use is None else values[use.place] for use in self.layer.uses)
        tangent = self.layer.tangent([None if v is None else v.to(g.dtype) for v in used], g)
        return layout.inner(g, tangent, n)

    def _from_factors(self, values: PartlyFactored, g: Tensor) -> Tensor | None:
        """< g, tangent > per row without multiplying V out: sum_k (c_k . g) (b_k . x + 1)."""
        bias, weight = self.layer.uses
        factors = None if weight is None else values.factors(weight.place)
        if weight is None or factors is None or factors.inputs is None:
            return None
        if factors.inputs.dtype != g.dtype or factors.transposed != weight.transposed:
            return None
        # The few rows first: the library multiplies these in half the time of their transpose.
        products = factors.inputs @ self.layer.inputs[0].t()
        if bias is not None:
            beside = values.factors(bias.place)
            if beside is None or beside.gradients is not factors.gradients:
                return None
            products += 1
        rows: Tensor = torch.linalg.vecdot(products, factors.gradients @ g.t(), dim=0)
        return rows

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """One gradient per origin, given that at the result."""
        return [
            None if part is None or origin is None else part.to(origin.dtype).reshape(origin.shape)
            for part, origin in zip(self.layer.gradients(g), self.origins, strict=True)
        ]

    def splits(self, layout: Layout) -> bool:
        """Whether the layer can be cut down to the rows of some examples."""
        layer, rows = self.layer, self.shape[:1]
        return (
            layout.dim == 0 and layer.divisible and all(x.shape[:1] == rows for x in layer.inputs)
        )

    def only(self, pick: Callable[[Tensor], Tensor]) -> RecordedContact:
        """The contact on some of its rows."""
        layer = on_inputs(self.layer, tuple(map(pick, self.layer.inputs)))
        return RecordedContact(layer, self.edge, self.shape, self.parameters, self.func)

    def release(self) -> None:
        """Keep the layer's own inputs and nothing of the graph."""
        if self.edge is not None:
            self.edge = None
            self.versions = tuple(map(version_of, self.layer.inputs))
            self.layer = on_inputs(self.layer, tuple(map(Tensor.detach, self.layer.inputs)))

    def require_untouched(self) -> None:
        """Raise, as autograd does, if an input was written since the pass."""
        if tuple(map(version_of, self.layer.inputs)) != self.versions:
            raise RuntimeError(
                "one of the tensors needed for the gradient has been modified by an in-place "
                f"operation since the step was weighed: an input of {self.func}. Call backward() "
                "before the next batch is copied into the same tensor"
            )


def on_inputs(layer: Layer, inputs: tuple[Tensor, ...]) -> Layer:
    """The same layer on other inputs."""
    return type(layer)(layer.uses, inputs, layer.fixed, layer.divisible, layer.rules)


@dataclass(frozen=True)
class Reading:
    """What a graph says: its contacts, the leaves it ends in (by id), and its shape, to compare."""

    contacts: list[RecordedContact]
    leaves: set[int]
    path: tuple[Any, ...]
    by_data: bool  # whether rows are moved by indices that may come from data

    def ghost_pass(self, view: ModelView, losses: Tensor, records: PlaceRecords) -> GhostPass:
        """The pass that made `losses`, with these contacts."""
        return GhostPass(
            view, losses, self.contacts, self.leaves, self.path, records, by_data=self.by_data
        )


def read(losses: Tensor, parameters: Sequence[Tensor]) -> Reading | None:
    """The contacts of the pass that made `losses`; None if a parameter is used in an unknown way."""
    places = {id(p): i for i, p in enumerate(parameters)}
    number: dict[Any, int] = {}
    uses: dict[Any, Use | None] = {}
    path: list[Any] = []
    leaves: set[int] = set()
    contacts: list[RecordedContact] = []
    by_data = False
    stack = [losses.grad_fn]
    while stack:
        node: Any = stack.pop()
        if node in number:
            continue
        number[node] = len(number)
        name = node.name()
        following = node.next_functions
        path.append(name)
        arguments: list[Use | None] = []
        for child, output in following:
            if child is None:
                arguments.append(None)
                path.append(-1)
                continue
            if child not in uses:
                uses[child] = _use(child, places, leaves, path)
            use = uses[child]
            arguments.append(use)
            path.append((use, output) if use else (number.get(child), output))
            if use is None:
                stack.append(child)
        if any(arguments):
            contact = _contact(node, name, arguments, parameters)
            if contact is None:
                return None
            contacts.append(contact)
        elif name in BY_DATA_NODES:
            by_data = True
        elif name == REENTRANT_CHECKPOINT:
            raise hidden_parameters()
    return Reading(contacts, leaves, tuple(path), by_data)


def _use(node: Any, places: dict[int, int], leaves: set[int], path: list[Any]) -> Use | None:
    """The aligned parameter that a node hands on, as it is, transposed, reshaped or cast; None for any
    other."""
    transposed, shape = False, None
    name = node.name()
    while name in _HANDING_ON:
        if name == _TRANSPOSE:
            transposed = not transposed
        elif name != _CAST and shape is None:  # the last view counts, which comes first here
            shape = tuple(result_metadata(node)[0].shape)
        ((node, _),) = node.next_functions
        name = node.name()
        path.append(name)
    if name != _LEAF:
        return None
    leaves.add(id(node.variable))
    place = places.get(id(node.variable))
    return None if place is None else Use(place, transposed, shape)


def _contact(
    node: Any, name: str, uses: Sequence[Use | None], parameters: Sequence[Tensor]
) -> RecordedContact | None:
    rule = RECORDED.get(name)
    for use in uses:
        if use and use.shape is not None and (use.transposed or name not in RESHAPING):
            return None
    layer = None if rule is None else rule(node, uses, parameters)
    if layer is None:
        return None
    shape = tuple(result_metadata(node)[0].shape)
    return RecordedContact(layer, GradientEdge(node, 0), shape, parameters, name)
