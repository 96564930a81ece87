"""One step as one graph of tensor operations: the back-ends, run once and written down.

    clean     G = mean f_clean;  V = grad G, as factors where they are smaller (clean/low_rank.py)
    scores    ghost: one backward to the results of the layers; or tangents (forward_mode)
    weights   the paper's rule
    d         grad sum_i weight_i f_i, times the safeguard's factor

Nothing is derived anew here. The code of the eager back-ends runs on tensors without values
(`make_fx`), and each operation that it calls is written down: forward, backward, scores, gradient. What
depends on values is settled before, on real tensors: where the examples lie (ghost), and which buffers
the forward writes. The graph is then handed to torch.compile.

On the host the graph may end before d, so that examples without weight cost nothing (late_update.py).

Where the forward draws random numbers, the clean pass draws from a stream of its own, which is set between
two graphs: one for the clean side, one for the rest.

Cost: as ghost or forward_mode, without their Python. d is computed at once, so it is held until
`backward()`; activations are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..backends import ForwardMode, TrainPass
from ..backends.ghost import GhostPass, Layouts, read, watched_pass
from ..clean import collected, paying
from ..model import Direction, ModelView, on_host
from ..proof import Records
from ..rule import weights_from_scores
from ..safeguard import NextBatchJudge
from ..torch_internals import version_of
from .capture import CapturedPass
from .late_update import LateUpdate, pays

# Of a traced step, before the gradient.
FIRST_OUTPUTS = (
    "losses", "scores", "weights", "total", "clean_losses", "clean_loss", "factor",
)  # fmt: skip
STATE = ("step", "trust", "evidence", "good", "place", "mean")  # of the safeguard, in this order
WAYS = ("ghost", "forward_mode")  # in the order of their cost


@dataclass(frozen=True)
class InputPlaces:
    """Where the inputs of the two graphs are found among the inputs of the traced step.

    Those are: every aligned parameter, in the order of `names`; then all other inputs of the train
    graph, and all of the clean graph that it does not share with it.
    """

    train: list[int]
    clean: list[int]
    count: int

    @staticmethod
    def of(
        train: Sequence[Tensor],
        clean: Sequence[Tensor],
        parameters: Sequence[Tensor],
        shared: set[int],
    ) -> InputPlaces:
        """shared: ids of the model's tensors. What else is in both batches may differ in the next step."""
        known = {id(p): i for i, p in enumerate(parameters)}
        count = len(known)
        sides: list[list[int]] = []
        for inputs in (train, clean):
            own: list[int] = []
            for x in inputs:
                if id(x) in known:
                    own.append(known[id(x)])
                    continue
                own.append(count)
                if id(x) in shared:
                    known[id(x)] = count
                count += 1
            sides.append(own)
        return InputPlaces(sides[0], sides[1], count)

    def gathered(
        self, train: Sequence[Tensor], clean: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> list[Tensor]:
        """The inputs of the traced step. Parameters are the present ones, where a graph reads them."""
        flat: list[Any] = [*parameters, *[None] * (self.count - len(parameters))]
        for place, x in zip(self.clean, clean, strict=True):
            flat[place] = x
        for place, x in zip(self.train, train, strict=True):
            flat[place] = x
        return flat


@dataclass(frozen=True)
class RealFacts:
    """What the trace takes from real tensors. written: places of buffers that the forward writes.
    batch: places of what is no parameter or buffer.

    For ghost, watched: whether its contacts are found by watching the forward, or else by reading the
    graph. layouts: where the examples lie. late: whether the update is left to late_update.py.
    """

    written: frozenset[int] = frozenset()
    batch: tuple[int, ...] = ()
    watched: bool = False
    layouts: Layouts = ()
    late: bool = False


class TracedStep:
    """The formula of a step over flat lists of tensors; `clean` and `train` are its two halves.

    names:   of the aligned parameters, the first inputs of each half.
    way:     "ghost" or "forward_mode".
    touched: the parameters that the train losses reach, by position; known once `train` has run.
    late:    how to make the update from the last outputs of `train`, where it makes none itself.
    """

    def __init__(
        self,
        view: ModelView,
        names: Sequence[str],
        train: CapturedPass,
        clean: CapturedPass,
        places: InputPlaces,
        way: str,
    ) -> None:
        self.view, self.names, self.way, self.places = view, tuple(names), way, places
        self.touched: list[int] = []
        self.late: LateUpdate | None = None
        self._train, self._clean = train.graph, clean.graph
        self._facts = RealFacts()

    def settle(self, flat: Sequence[Tensor]) -> None:
        """Find out, on real tensors, what the trace needs to know. The model stays as it is.

        Raises UnsupportedModelError where examples touch each other (ghost).
        """
        theta, rest = self._leaves(flat)
        private = [*theta, *(x.detach().clone() for x in rest)]
        before = [version_of(x) for x in private]
        values = [x.clone() for x in private[len(theta) :]]
        losses = self._losses(self._train, self.places.train, private)
        written = {
            i
            for i, x in enumerate(private)
            if i >= len(theta)
            and (version_of(x) != before[i] or not _equal(x, values[i - len(theta)]))
        }
        own = {id(p) for p in self.view.parameters}
        own |= {id(b) for module in self.view.modules for b in module.buffers(recurse=False)}
        batch = tuple(i for i in range(len(theta), len(private)) if id(flat[i]) not in own)
        self._facts = RealFacts(frozenset(written), batch)
        if self.way == "ghost":
            del losses  # and with them the graph
            self._facts = self._located([*theta, *(x.detach() for x in rest)])

    def _located(self, inputs: Sequence[Tensor]) -> RealFacts:
        """With what ghost needs to know; by the first of its engines that can follow the pass."""
        theta: list[Any] = list(inputs[: len(self.names)])
        direction = Direction(self.names, tuple(theta), [torch.ones_like(p) for p in theta])
        try:
            return self._layouts(inputs, direction, replace(self._facts, watched=False))
        except UnsupportedModelError:
            return self._layouts(inputs, direction, replace(self._facts, watched=True))

    def _layouts(
        self, inputs: Sequence[Tensor], direction: Direction, facts: RealFacts
    ) -> RealFacts:
        own = [x.clone() if i in facts.written else x for i, x in enumerate(inputs)]
        run = self._ghost_pass(own, direction, facts)
        if run.parts is not None:
            raise UnsupportedModelError("a loss with several parts an example")
        if run.by_data:
            raise UnsupportedModelError("rows are moved by indices that come from data")
        run.require_seen(self.names, direction.parameters)
        layouts = run.layouts(self.names, direction.parameters)
        if not run.certain:
            raise UnsupportedModelError("this batch does not tell where its examples lie")
        late = not facts.watched and on_host(run.losses)
        late = late and pays(run.contacts, direction.parameters)
        return replace(facts, layouts=layouts, late=late)

    def _ghost_pass(
        self, inputs: Sequence[Tensor], direction: Direction, facts: RealFacts
    ) -> GhostPass:
        """The pass over the train batch, and its contacts."""

        def loss(_: nn.Module, __: Any) -> Tensor:
            return self._losses(self._train, self.places.train, inputs)

        if facts.watched:
            batch = [inputs[i] for i in facts.batch]
            return watched_pass(TrainPass(self.view, loss, batch), direction, Records())
        losses = loss(self.view.model, ())
        reading = read(losses, direction.parameters)
        if reading is None:
            raise UnsupportedModelError(
                "a parameter is used by an operation that core/ops cannot read"
            )
        return reading.ghost_pass(self.view, losses, Records())

    @property
    def written(self) -> frozenset[int]:
        """InputPlaces, among the inputs, of what the forward of the train batch writes."""
        return self._facts.written

    def clean(self, flat: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """The losses of the clean batch, [m], and the gradient of their mean per parameter."""
        theta, rest = self._leaves(flat)
        written = self._facts.written
        own = [x.clone() if i in written else x for i, x in enumerate(rest, len(theta))]
        losses = self._losses(self._clean, self.places.clean, [*theta, *own])
        losses = losses.mean(1) if losses.ndim == 2 else losses
        mean = losses.mean()
        reading = read(mean, theta) if self.way == "ghost" else None
        if reading is not None and paying([c.layer for c in reading.contacts], theta):
            edges = [contact.edge for contact in reading.contacts if contact.edge is not None]
            outputs = torch.autograd.grad(mean, edges, allow_unused=True)
            layers = [contact.layer for contact in reading.contacts]
            return losses.detach(), collected(layers, outputs, theta)
        values = torch.autograd.grad(mean, theta, allow_unused=True)
        dense = [
            torch.zeros_like(p) if v is None else v for v, p in zip(values, theta, strict=True)
        ]
        return losses.detach(), dense

    def train(
        self,
        flat: Sequence[Tensor],
        clean_losses: Tensor,
        values: Sequence[Tensor],
        state: Sequence[Tensor],
    ) -> list[Tensor]:
        """`FIRST_OUTPUTS`, the gradient of each touched parameter, the safeguard's new state; or, if
        the update comes `late`, what it is made of in place of the gradient, at the end.

        state: the safeguard's present one; empty without one.
        """
        theta, rest = self._leaves(flat)
        inputs = [*theta, *rest]
        direction = Direction(self.names, tuple(theta), values)
        by = self._by_ghost if self.way == "ghost" else self._by_tangents
        losses, scores, gradient = by(inputs, direction)
        weights = weights_from_scores(scores)
        found = [] if self.late else gradient(weights)
        with torch.no_grad():
            total, clean_loss = (weights * losses).sum(), clean_losses.mean()
            factor, new = weights.new_ones(()), list[Tensor]()
            if state:
                judge = NextBatchJudge()
                judge.load_state_dict(dict(zip(STATE, state, strict=True)))
                factor = judge(clean_loss, direction, (weights * scores).sum(), list)
                found = [None if g is None else g * factor.to(g.dtype) for g in found]
                new = [judge.state_dict()[name] for name in STATE]
        first = [losses, scores, weights, total, clean_losses, clean_loss, factor]
        if self.late:
            self.touched = self.late.touched
            return [*first, *new, *self.late.tensors]
        self.touched = [i for i, g in enumerate(found) if g is not None]
        return [*first, *(g for g in found if g is not None), *new]

    def _by_ghost(self, inputs: Sequence[Tensor], direction: Direction) -> Parts:
        theta, layouts = direction.parameters, self._facts.layouts
        run = self._ghost_pass(inputs, direction, self._facts)
        if len(run.contacts) != len(layouts):
            raise UnsupportedModelError("the traced pass has other layers than the real one")
        capture = run.capture(layouts, None, keep=False)
        with torch.no_grad():
            scores = capture.scores(direction.values, run.losses, run.direct)
        places = [i for i, p in enumerate(theta) if id(p) in run.leaves]
        reached = [theta[i] for i in places]
        if self._facts.late:
            self.late = LateUpdate(capture, places)

        def gradient(weights: Tensor) -> list[Tensor | None]:
            with torch.no_grad():
                parts = capture.consume(weights, reached, skip_zeros=False)
            by_id = {id(p): g for p, g in zip(reached, parts, strict=True)}
            return [by_id.get(id(p)) for p in theta]

        return run.losses.detach(), scores, gradient

    def _by_tangents(self, inputs: Sequence[Tensor], direction: Direction) -> Parts:
        def loss(_: nn.Module, __: Any) -> Tensor:
            return self._losses(self._train, self.places.train, inputs)

        alignment = ForwardMode().align(TrainPass(self.view, loss, ()), direction)

        def gradient(weights: Tensor) -> list[Tensor | None]:
            with torch.enable_grad():
                total = alignment.weighted(weights)
            return list(torch.autograd.grad(total, direction.parameters, allow_unused=True))

        return alignment.losses, alignment.scores, gradient

    def _leaves(self, flat: Sequence[Tensor]) -> tuple[list[Any], list[Tensor]]:
        """The aligned parameters, to be differentiated by; and the other inputs."""
        k = len(self.names)
        return [p.detach().requires_grad_() for p in flat[:k]], list(flat[k : self.places.count])

    def _losses(self, graph: Any, at: Sequence[int], inputs: Sequence[Tensor]) -> Tensor:
        # Fused recurrent layers hide their steps.
        with self.view.recurrence()(), torch.enable_grad():
            losses: Tensor = graph(*[inputs[i] for i in at])[0]
        return losses


# losses, scores, and weights -> the gradient per aligned parameter
Parts = tuple[Tensor, Tensor, Callable[[Tensor], list[Tensor | None]]]


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
