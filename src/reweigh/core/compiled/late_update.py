"""The update of a compiled step, after its graph: d = sum_i w_i grad f_i over the examples with weight.

A compiled graph has static shapes, so in it every example costs the same, with weight or without. About
half of the examples have none. Where their products (a weight gradient is one forward's worth) cost more
than the calls that leave them out, the graph ends with the weights, and hands over what the update is made
of: per layer, its inputs and the gradient at its result. The eager back-end's own code does the rest.

Not on devices, where reading which weights are zero would make the host wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ..backends.ghost import Capture, Contact, Layouts, RecordedContact
from ..ops import Convolution, Layer, Linear
from ..torch_internals import version_of

WORTH = 3e7  # products per layer, on average: half of them take longer than some calls from Python


def pays(contacts: Sequence[Contact], parameters: Sequence[Tensor]) -> bool:
    """Whether leaving out examples saves more products than it takes calls."""
    return sum(_products(c, parameters) for c in contacts) > WORTH * len(contacts)


def _products(contact: Contact, parameters: Sequence[Tensor]) -> int:
    """Of the weight gradient of a linear layer or a convolution: (elements of y) (elements of W) / out."""
    assert isinstance(contact, RecordedContact)
    layer = contact.layer
    if not isinstance(layer, Linear) and layer.rules is not Convolution:
        return 0
    weight = layer.uses[1]
    if weight is None:
        return 0
    size, y = parameters[weight.place].numel(), math.prod(contact.shape)
    return y * size // contact.shape[1]


@dataclass(frozen=True, eq=False)
class _Part:
    """A layer without tensors; where its inputs, its fixed ones and its g are among those handed over."""

    layer: Layer
    shape: tuple[int, ...]
    func: str
    inputs: list[int]
    fixed: list[int | None]
    g: int


class LateUpdate:
    """What a trace leaves of its layers, to be filled with the tensors of each run.

    tensors: of the trace, to be handed over by the graph. touched: the parameters that get a gradient,
    by position.
    """

    def __init__(self, capture: Capture, touched: Sequence[int]) -> None:
        self.touched, self.tensors = list(touched), list[Tensor]()
        self._layouts: Layouts = capture.layouts
        self._n = capture.n
        self._parts = [
            self._taken(contact, g)
            for contact, g in zip(capture.contacts, capture.outputs, strict=True)
            if isinstance(contact, RecordedContact)
        ]
        self._outputs: list[tuple[bool, int]] = []

    def _taken(self, contact: RecordedContact, g: Tensor) -> _Part:
        layer = contact.layer
        fixed = [self._place(x) if isinstance(x, Tensor) else None for x in layer.fixed]
        inputs = [self._place(x) for x in layer.inputs]
        # Tensors of the trace are not kept: each run has its own.
        plain = tuple(None if isinstance(x, Tensor) else x for x in layer.fixed)
        empty = replace(layer, inputs=(), fixed=plain)
        return _Part(empty, contact.shape, contact.func, inputs, fixed, self._place(g))

    def _place(self, tensor: Tensor) -> int:
        """Where a tensor is in `tensors`, each of which is there once."""
        for place, known in enumerate(self.tensors):
            if known is tensor:
                return place
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def cut_down(self, graph: GraphModule) -> None:
        """Let a graph that ends with `tensors` not hand over what it was given, nor one thing twice."""
        (end,) = graph.graph.find_nodes(op="output")
        outputs: list[Node] = list(end.args[0])
        first = len(outputs) - len(self.tensors)
        given = {node: i for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
        kept, self._outputs = outputs[:first], []
        for node in map(_undetached, outputs[first:]):
            if node in given:
                self._outputs.append((True, given[node]))
                continue
            if node not in kept[first:]:
                kept.append(node)
            self._outputs.append((False, kept.index(node, first) - first))
        end.args = (kept,)
        graph.recompile()
        self.tensors.clear()

    def gradient(
        self,
        inputs: Sequence[Tensor],
        handed: list[Tensor],
        weights: Tensor,
        parameters: Sequence[Tensor],
    ) -> list[Tensor]:
        """sum_i weights_i grad f_i for each touched parameter. inputs: of the graph. handed: by it;
        emptied, so that each is freed once it has been used."""
        tensors = [(inputs if given else handed)[i] for given, i in self._outputs]
        contacts: list[Contact] = []
        for part in self._parts:
            own = tuple([tensors[i] for i in part.inputs])
            places = zip(part.layer.fixed, part.fixed, strict=True)
            fixed = tuple([x if i is None else tensors[i] for x, i in places])
            layer = replace(part.layer, inputs=own, fixed=fixed)
            versions = tuple(map(version_of, own))
            contacts.append(
                RecordedContact(layer, None, part.shape, parameters, part.func, versions)
            )
        outputs = [tensors[part.g] for part in self._parts]
        handed.clear()
        del tensors, own, fixed, layer
        touched = [parameters[i] for i in self.touched]
        found = Capture(contacts, outputs, self._layouts, self._n).consume(weights, touched)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(touched, found, strict=True)
        ]


def _undetached(node: Node) -> Node:
    while node.target is torch.ops.aten.detach.default:
        node = node.args[0]  # type: ignore[assignment]
    return node
