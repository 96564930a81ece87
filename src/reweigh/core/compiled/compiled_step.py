"""A traced step in its compiled form: how it is made, and one run of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from ...errors import UnsupportedModelError
from ..backends import Choice
from ..backends.ghost import without_autocast
from ..model import Snapshot, on_host, sources_of, with_gradient
from ..ops import is_random
from ..proof import Record
from ..step import Step
from ..torch_internals import OpOverload, is_mutable, same_random_numbers, written_down
from .capture import CapturedPass
from .channels_last import with_channels_last
from .traced_step import FIRST_OUTPUTS, TracedStep

MOST_OPERATIONS = 30_000  # of a step: such a graph takes a compiler the better part of an hour
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record them


@dataclass
class CompiledNumbers:
    """What a run has computed. gradient: of each of `touched`, times the factor. state: the
    safeguard's new one."""

    losses: Tensor
    scores: Tensor
    weights: Tensor
    total: Tensor
    clean_losses: Tensor
    clean_loss: Tensor
    factor: Tensor
    touched: list[Tensor]
    gradient: list[Tensor]
    state: list[Tensor]

    def step(self) -> Step:
        """As the user gets it: `backward()` hands the gradient out."""
        found = self.gradient

        def gradient(scale: Tensor) -> Sequence[Tensor]:
            if on_host(scale) and float(scale) == 1:
                return found
            return [g * scale.to(g.device, g.dtype) for g in found]

        loss = with_gradient(self.total, self.touched, gradient)
        return Step(loss, self.weights, self.scores, self.losses, self.clean_loss, self.factor)


@dataclass
class CompiledStep:
    """A traced step, compiled.

    parameters: the aligned ones, for those that no graph reads.
    graphs:     one; two where the forward draws random numbers: the clean side, and the rest.
    reuses:     whether a run may write its results where those of the last one lie (CUDA graphs).
    record:     of its uses, and when it is compared next. choice: as `Reweighter.backend` shows it.
    """

    traced: TracedStep
    parameters: tuple[nn.Parameter, ...]
    graphs: tuple[Callable[..., Any], ...]
    choice: Choice
    reuses: bool = False
    record: Record[None] = field(default_factory=lambda: Record(None))
    seconds: float = 0.0

    @property
    def random(self) -> bool:
        """Whether the forward draws random numbers."""
        return len(self.graphs) > 1

    def first_run(
        self, train: CapturedPass, clean: CapturedPass, state: Sequence[Tensor]
    ) -> CompiledNumbers:
        """As `run`, in which torch.compile compiles."""
        began = time.perf_counter()
        with same_random_numbers() if self.random else nullcontext():
            outcome = self.run(train, clean, state)
        self.seconds += time.perf_counter() - began
        return outcome

    def run(
        self, train: CapturedPass, clean: CapturedPass, state: Sequence[Tensor]
    ) -> CompiledNumbers:
        """All numbers of a step. state: of the safeguard, if any."""
        places = self.traced.places
        flat = places.gathered(train.inputs, clean.inputs, self.parameters)
        # What autocast chose is written in the graph: it must not choose again.
        with without_autocast(flat[0].device.type), torch.no_grad():
            if not self.random:
                given = [*flat, *state]
                found = list(self.graphs[0](*given))
            else:
                start = Snapshot((), sources_of(self.traced.view.modules))
                start.fork_random_stream()
                try:
                    clean_side = self.graphs[0](*flat)
                finally:
                    start.restore()
                given = [*flat, *clean_side, *state]
                found = list(self.graphs[1](*given))
            if self.reuses:
                found = [x.clone() for x in found]
            first = dict(zip(FIRST_OUTPUTS, found, strict=False))
            touched, late, rest = self.traced.touched, self.traced.late, found[len(first) :]
            if late is None:
                gradient, new = rest[: len(touched)], rest[len(touched) :]
            else:
                new, handed = rest[: len(state)], rest[len(state) :]
                share = first["weights"] * first["factor"]
                del found, rest
                gradient = late.gradient(given, handed, share, flat[: len(self.traced.names)])
        return CompiledNumbers(
            **first, touched=[flat[i] for i in touched], gradient=list(gradient), state=list(new)
        )


def compiled(
    traced: TracedStep,
    parameters: tuple[nn.Parameter, ...],
    flat: Sequence[Tensor],
    state: Sequence[Tensor],
    options: Mapping[str, Any],
    choice: Choice,
) -> CompiledStep:
    """Trace a settled step and hand it to torch.compile, which compiles at the first run."""
    began = time.perf_counter()
    count, aligned = traced.places.count, len(traced.names)

    def whole(*inputs: Tensor) -> list[Tensor]:
        losses, values = traced.clean(inputs[:count])
        return traced.train(inputs[:count], losses, values, inputs[count:])

    def clean(*inputs: Tensor) -> list[Tensor]:
        losses, values = traced.clean(inputs)
        # The other graph is written down for values with the strides of their parameters.
        return [losses, *(_laid_out_like(p, values[i]) for i, p in enumerate(inputs[:aligned]))]

    def rest(*inputs: Tensor) -> list[Tensor]:
        end = count + 1 + aligned
        losses, *values = inputs[count:end]
        return traced.train(inputs[:count], losses, values, inputs[end:])

    def write() -> Sequence[GraphModule]:
        step = written_down(whole, (*flat, *state))
        if (size := len(step.graph.nodes)) > MOST_OPERATIONS:
            raise UnsupportedModelError(
                f"the step has {size} operations, which take very long to compile; expected at most "
                f"{MOST_OPERATIONS}: cut sequences through recurrent layers shorter"
            )
        if not _draws(step):
            return [step]
        first = written_down(clean, flat)
        middle = [flat[0].new_empty(1), *(p.detach() for p in parameters)]
        middle[0] = traced.clean(flat)[0]
        second = written_down(rest, (*flat, *middle, *state))
        return [first, second]

    graphs = with_channels_last(write) if traced.way == "forward_mode" else write()
    if len(graphs) > 1:
        graphs = [_in_memory_order(graph) for graph in graphs]
    if traced.late is not None:
        traced.late.cut_down(graphs[-1])
    ready = tuple(
        torch.compile(graph, fullgraph=True, dynamic=False, **options) for graph in graphs
    )
    kind = options.get("backend", "inductor")
    how = "one graph" if len(ready) == 1 else "two graphs, for the sake of random numbers"
    if traced.late is not None:
        how += ", the update after it without the examples of no weight"
    reason = f"{choice.reason}; compiled by {kind} as {how}, compared with the eager step"
    reuses = options.get("mode") in CUDA_GRAPHS
    step = CompiledStep(traced, parameters, ready, Choice(traced.way, reason), reuses)
    step.seconds = time.perf_counter() - began
    return step


def _laid_out_like(p: Tensor, value: Tensor) -> Tensor:
    return value if value.stride() == p.stride() else torch.empty_like(p).copy_(value)


def _in_memory_order(graph: GraphModule) -> GraphModule:
    """Let random numbers be drawn in the order in which eager code draws them: that of the memory.

    A compiler may lay a transposed tensor out anew, and would fill it in another order. Here it gets a
    contiguous one to fill, which is transposed afterwards.
    """
    nodes = graph.graph
    for node in list(nodes.nodes):
        func = node.target
        if not (isinstance(func, OpOverload) and is_random(func) and is_mutable(func)):
            continue
        like, fresh = node.meta["val"], node.args[0]
        order = sorted(range(like.ndim), key=like.stride, reverse=True)
        if like.is_contiguous() or not like.permute(order).is_contiguous():
            continue
        back = [order.index(i) for i in range(like.ndim)]
        with nodes.inserting_before(node):
            shape = [like.shape[i] for i in order]
            options = {"dtype": like.dtype, "device": like.device}
            empty = nodes.call_function(torch.ops.aten.empty.memory_format, (shape,), options)
            drawn = nodes.call_function(func, (empty, *node.args[1:]), dict(node.kwargs))
            view = nodes.call_function(torch.ops.aten.permute.default, (drawn, back))
        for old in (node, fresh):
            old.replace_all_uses_with(view, delete_user_cb=lambda user, own=node: user is not own)
        nodes.erase_node(node)
    nodes.lint()
    graph.recompile()
    return graph


def _draws(graph: GraphModule) -> bool:
    """Whether an operation of a graph draws random numbers."""
    return any(
        isinstance(node.target, OpOverload) and is_random(node.target) and _dropout(node) != 0
        for node in graph.graph.nodes
    )


def _dropout(node: Node) -> Any:
    """The share that attention drops; None for calls without such an argument."""
    if "dropout_p" in node.kwargs:
        return node.kwargs["dropout_p"]
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    place = names.index("dropout_p") if "dropout_p" in names else None
    if place is None or place >= len(node.args):  # left out: none is dropped
        return None if place is None else 0.0
    return node.args[place]
