"""Scores without per-example gradients: one backward to the activations.

A *contact* is an operation y = op(x, W) in which a parameter W first meets the batch. The gradient of
example i with respect to W enters its score only through

    < grad_W f_i, V >  =  < d f_i / d y_i ,  (d op / d W) . V >          V: the clean gradient for W

so the scores are sums over the contacts of (gradient at the result) x (tangent of the result with x
held fixed). For a linear layer that is g_i . (V a_i), the layer-wise form of Section 3.2. The
gradients at all results come from one backward pass that never forms a weight gradient. Once the
weights w are known, the update is assembled from what was captured: for a linear layer
sum_i w_i g_i a_i', with no second backward.

Cost: one forward more than plain training. Exact while no two examples touch each other between a
contact and the loss. Train-mode BatchNorm is refused by name; any other coupling is found by
measuring: with random factors r, half of them zero, the gradient of sum_i r_i f_i at each result must
be that of sum_i f_i, times r_i in the rows of example i. (This also tells which rows those are.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from ....errors import UnsupportedModelError
from ...clean import Cheaper, CleanSide
from ...model import Batch, Direction, ModelView, on_host, with_gradient
from ...processes import Group
from ...proof import (
    Record,
    Records,
    half_probe,
    require_scores,
    require_update,
    score_proof,
    unseen,
)
from ...rounding import Rounding, strict
from ..base import Alignment, Backend, TrainPass
from .contact import Contact, Origin, Transposed
from .coupling import layouts_of
from .example_rows import Layout

Layouts = tuple[Layout, ...]
MOST_TRIALS = 4  # of sizes that could be mistaken in new ways; see Places


@dataclass(frozen=True)
class Places:
    """Where the examples lie in the results of a path's contacts: what was measured of it.

    They lie where the operations put them, whatever the size of the batch, so that what was measured
    for one size serves others. The first few new ways in which dimensions are multiples of the number
    of examples are measured all the same.

    mistakable: those ways. Per contact and dimension: 0 where it cannot hold n examples, 1 where just
                those, else 2.
    """

    layouts: Layouts
    mistakable: frozenset[Hashable]

    def serve(self, contacts: Sequence[Contact], n: int) -> bool:
        """Whether the results of these contacts can hold n examples in this way."""
        return all(
            layout.fits(c.shape, n) for layout, c in zip(self.layouts, contacts, strict=True)
        )


PlaceRecords = Records[Places]


class JointEngine(Protocol):
    """A way to weigh both batches in one pass. possible: False once it is known not to be."""

    possible: bool | None

    def align(
        self, pass_: TrainPass, clean: Batch, parameters: dict[str, nn.Parameter]
    ) -> BothSides | None:
        """Both sides of a step; None, and everything as it was, where it takes two passes."""
        ...


class SharedJointEngine(Protocol):
    """As `JointEngine`, where processes share the batches and fully_shard has spread the parameters."""

    possible: bool | None

    def align(
        self, pass_: TrainPass, clean: Batch, parameters: dict[str, nn.Parameter], group: Group,
        *, listen: bool,
    ) -> BothSides | None:  # fmt: skip
        """Both sides of a step. listen: nobody knows yet whether the forward talks between processes."""
        ...


@dataclass(frozen=True)
class BothSides:
    """What two passes would have given: the clean side, and the train batch aligned with it."""

    clean: CleanSide
    alignment: Alignment


# view, reduced loss, parameters, processes -> as `Cheaper`, where fully_shard has spread the parameters
SharedCheaper = Callable[
    [ModelView, Tensor, dict[str, nn.Parameter], Group], Sequence[Tensor] | None
]


class SeveralLosses(UnsupportedModelError):
    """Ghost takes a backward for each part of an example; others do all parts in one pass."""


class Ghost(Backend):
    """Scores from captured inputs and one backward to the results of the contacts.

    by_part:  whether to serve a loss with k parts an example, at the cost of k backwards.
    one_pass: for both batches at once. clean_gradient: in factors, where these are smaller.
    engines:  for the train batch, by what they do, tried in this order. engine: the one in use.
    sharded:  for parameters that fully_shard has spread, instead of `engines`; and
              shared_clean_gradient and sharded_one_pass instead of clean_gradient and one_pass.
    """

    name = "ghost"
    exact = True
    cost = "1 forward"
    proves_itself = True
    engine = ""
    by_part = False

    def __init__(
        self,
        one_pass: JointEngine,
        clean_gradient: Cheaper,
        engines: Mapping[str, Engine],
        sharded: Mapping[str, Engine],
        shared_clean_gradient: SharedCheaper,
        sharded_one_pass: SharedJointEngine,
    ) -> None:
        self.sharded_one_pass = sharded_one_pass
        self.one_pass, self.clean_gradient = one_pass, clean_gradient
        self.shared_clean_gradient = shared_clean_gradient
        self._engines, self._sharded = list(engines.items()), list(sharded.items())
        self._records: PlaceRecords = Records()

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """The train batch along `direction`, by the first engine that can."""
        start = pass_.view.start
        if pass_.view.sharded:
            self._engines = self._sharded
        while True:
            self.engine, engine = self._engines[0]
            run = engine(pass_, direction, self._records)
            if run is not None and run.parts is not None and not self.by_part:
                if pass_.view.sharded:
                    raise UnsupportedModelError(
                        "several losses an example with parameters that fully_shard has spread: "
                        "use backend='forward_mode'"
                    )
                k = run.parts.shape[1]
                raise SeveralLosses(f"a loss with {k} parts an example takes it {k} backwards")
            if run is not None:
                try:
                    return run.align(direction)
                except UnsupportedModelError:
                    if run.known or len(self._engines) == 1:  # if known: the model has changed
                        raise
            del run  # and with it the graph
            del self._engines[0]
            start.restore()


class GhostPass:
    """One forward pass and its contacts; the engines differ in how they find these.

    leaves: ids of the tensors that a backward would leave a gradient in.
    path:   what the pass did; the examples lie the same way in every pass of one path, unless
            by_data: then indices that come from data may move them, and every pass is measured.
    direct: [n], the score of a part of the loss that does not involve the batch.
    parts:  [n, k], where the loss has k parts an example; `losses` is then their sum.
    certain: whether `layouts` could tell where the examples lie, and not only guess.
    """

    def __init__(
        self,
        view: ModelView,
        losses: Tensor,
        contacts: Sequence[Contact],
        leaves: set[int],
        path: Hashable,
        records: PlaceRecords,
        *,
        by_data: bool,
        direct: Tensor | None = None,
    ) -> None:
        self.parts = losses if losses.ndim == 2 else None
        self.view, self.losses, self.contacts = view, losses, contacts
        if self.parts is not None:
            self.losses = losses.sum(1)
        self.leaves, self.by_data, self.direct = leaves, by_data, direct
        self._plain: list[Tensor] | None = None  # gradients of the sum of the losses, once measured
        self._records = records
        n = len(losses) or 1  # none: the share of a process, whose layouts nobody asks for
        # A dimension of just n does not tell whether examples are its slower or its faster index.
        self._key = (path, *[(c.roots(), tuple([size == n for size in c.shape])) for c in contacts])
        record = records.get(self._key)
        known = record is not None and record.value.serve(contacts, n)
        self._record: Record[Places] | None = record if known else None
        self._mistakable = tuple(_mistakable(c.shape, n) for c in contacts)
        self.certain = True

    @property
    def known(self) -> bool:
        """Whether a pass of this path was right before."""
        return self._record is not None

    def due(self) -> bool:
        """Whether this pass must be measured and proven."""
        record = self._record
        if record is None or record.uses + 1 >= record.next_look:
            return True
        seen = record.value.mistakable
        return len(seen) < MOST_TRIALS and self._mistakable not in seen

    def assembles(self, parameters: Sequence[Tensor]) -> bool:
        """Whether the update can be put together from a capture: every trainable parameter is
        aligned, nothing else needs a gradient, and no hook waits for a backward through the graph."""
        if self.view.backward_hooked():
            return False
        return self.view.trained() == {id(p) for p in parameters} >= self.leaves

    def layouts(self, names: Sequence[str], parameters: Sequence[Tensor]) -> Layouts:
        """Where the examples lie in the result of every contact; measured where that is due."""
        record = self._record
        if record is not None and not self.by_data and not self.due():
            return record.value.layouts
        losses, factors = self.losses, half_probe(self.losses)
        ones = torch.ones_like(losses)
        self._plain = backward_to(losses, self.contacts, ones, keep=True)
        with self.view.beside_the_step():
            layouts, self.certain = layouts_of(
                self.contacts,
                self._plain,
                backward_to(losses, self.contacts, factors, keep=True),
                factors,
                close=strict(self.view.precision(losses)),
                rounding=Rounding(
                    self._plain, lambda c: backward_to(losses, self.contacts, ones * c, keep=True)
                ),
                names={id(p): name for name, p in zip(names, parameters, strict=True)},
            )
        return layouts

    def capture(self, layouts: Layouts, factors: Tensor | None, *, keep: bool) -> Capture:
        """Go back to the contacts with sum_i factors_i f_i; None is all ones. keep: the graph is
        needed again."""
        outputs = None if factors is not None else self._plain
        if outputs is None:
            ones = torch.ones_like(self.losses) if factors is None else factors
            outputs = backward_to(self.losses, self.contacts, ones, keep=keep)
        return Capture(list(self.contacts), outputs, layouts, len(self.losses))

    def remember(self, layouts: Layouts) -> None:
        """Count this use; keep what was measured, if another batch could not show otherwise."""
        if not self.due():
            assert self._record is not None
            self._record.uses += 1
        elif self.certain:
            before = frozenset() if self._record is None else self._record.value.mistakable
            self._records.looked(self._key, Places(layouts, before | {self._mistakable}))

    def align(self, direction: Direction) -> Alignment:
        """The scores along `direction`, and the way to the update."""
        if self.due():
            self.require_seen(direction.names, direction.parameters)
        if self.parts is not None:
            return self._align_parts(self.parts, direction)
        losses, due = self.losses, self.due()
        assembles = self.assembles(direction.parameters)
        # The backward of the capture takes the place of the user's where the update is assembled.
        with nullcontext() if assembles else self.view.beside_the_step():
            layouts = self.layouts(direction.names, direction.parameters)
            capture = self.capture(layouts, None, keep=due or not assembles)
        scores = capture.scores(direction.values, losses, self.direct)
        if due:
            update = partial(capture.gradient, parameters=direction.parameters)
            with self.view.beside_the_step():
                require_update(self.view, losses, scores, direction, update)
        self.remember(layouts)
        if not assembles:
            return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
        # A parameter that the loss does not touch keeps the gradient it has, as in plain training.
        reached = [p for p in direction.parameters if id(p) in self.leaves]
        return assembled(losses.detach(), scores, capture, reached)

    def require_seen(self, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        """Raise if a parameter that the loss depends on is part of no contact. Its gradient may be zero
        in this batch, and not in the next. (A part of the loss without the batch needs no contact.)"""
        if self.direct is not None:
            return
        seen = {root for contact in self.contacts for root in contact.roots()}
        for name, parameter in zip(names, parameters, strict=True):
            if id(parameter) in self.leaves and id(parameter) not in seen:
                raise unseen(name)

    def _align_parts(self, parts: Tensor, direction: Direction) -> Alignment:
        """Scores [n, k]: one backward to the results per part. The update goes through the graph."""
        due, columns = self.due(), []
        layouts = self.layouts(direction.names, direction.parameters)
        ones = torch.ones_like(self.losses)
        for k, part in enumerate(parts.unbind(1)):
            outputs = backward_to(part, self.contacts, ones, keep=True)
            direct = None if self.direct is None else self.direct[:, k]
            columns.append(
                scores_of(self.contacts, outputs, layouts, direction.values, self.losses, direct)
            )
        scores = torch.stack(columns, dim=1)
        alignment = Alignment(parts.detach(), scores, lambda w: (w * parts).sum())
        if due:
            proof = score_proof(alignment.weighted, parts.detach(), scores, direction)
            require_scores("ghost", self.view, proof, parts, direction)
        self.remember(layouts)
        return alignment


# Runs a pass and finds its contacts; None where they cannot be found this way.
Engine = Callable[[TrainPass, Direction, PlaceRecords], GhostPass | None]


@dataclass
class Capture:
    """Inputs and result gradients of every contact of one pass: all that an update needs."""

    contacts: list[Contact]
    outputs: list[Tensor]
    layouts: Layouts
    n: int  # examples

    def __post_init__(self) -> None:
        # The graph is not needed any more. Its first layer, through which no backward has gone,
        # would keep its inputs alive.
        for contact in self.contacts:
            contact.release()

    def scores(
        self, values: Sequence[Tensor | None], losses: Tensor, direct: Tensor | None
    ) -> Tensor:
        """sum over contacts of < g_i, (d op / d W) . V >."""
        return scores_of(self.contacts, self.outputs, self.layouts, values, losses, direct)

    def gradient(self, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """grad sum_i weights_i f_i per parameter; examples after the last weight have none."""
        return Capture(list(self.contacts), list(self.outputs), self.layouts, self.n).consume(
            weights, parameters
        )

    def consume(
        self, weights: Tensor, parameters: Sequence[Tensor], *, skip_zeros: bool = True
    ) -> list[Tensor | None]:
        """As `gradient`; frees the captured tensors while it runs, so it can be called once.

        skip_zeros: leave examples without weight out, where finding them needs no wait for a device.
        """
        for contact in self.contacts:
            contact.require_untouched()
        n, parts = self.n, dict[Origin, Tensor]()
        kept = weights.nonzero().flatten() if skip_zeros and on_host(weights) else None
        some = kept is not None and 0 < len(kept) < WORTH_SKIPPING * n
        share = weights.index_select(0, kept) if kept is not None and some else weights
        needed: list[tuple[Contact, Tensor]] = []  # all of it, before the first gradient is made
        for layout in reversed(self.layouts):
            contact, g = self.contacts.pop(), self.outputs.pop()
            if some and contact.splits(layout):
                assert kept is not None
                pick = partial(layout.pick, kept, n)
                contact = contact.only(pick)  # frees the other rows, contact by contact
                g = pick(g)
                g.mul_(layout.spread(share, g.shape).to(g.dtype))
            else:
                g = g * layout.spread(_padded(weights, n), g.shape).to(g.dtype)
            needed.append((contact, g))
        while needed:
            contact, g = needed.pop()
            for origin, part in zip(contact.origins, contact.gradients(g), strict=True):
                if isinstance(origin, Transposed):
                    _add(parts, origin.parameter, None if part is None else part.t())
                elif origin is not None:
                    _add(parts, origin, part)
        return _pull_back(parts, parameters)


def scores_of(
    contacts: Sequence[Contact],
    outputs: Sequence[Tensor],
    layouts: Layouts,
    values: Sequence[Tensor | None],
    losses: Tensor,
    direct: Tensor | None = None,
) -> Tensor:
    """[n]: sum over contacts of < g_i, (d op / d W) . V >, g in `outputs`; plus `direct`, if any."""
    parts = [] if direct is None else [direct.detach()]
    with without_autocast(losses.device.type), torch.no_grad():
        for contact, g, layout in zip(contacts, outputs, layouts, strict=True):
            part = contact.scores(values, g, layout, len(losses))
            if part is not None:
                parts.append(part.to(losses.dtype))
        return torch.stack(parts).sum(0) if parts else torch.zeros_like(losses)


# A batch is cut down to the examples with weight if these are less than this share of it.
WORTH_SKIPPING = 0.9


def assembled(
    losses: Tensor, scores: Tensor, capture: Capture, reached: Sequence[Tensor]
) -> Alignment:
    """An alignment whose update comes from the capture, for the parameters that the loss reaches."""

    def weighted(weights: Tensor) -> Tensor:
        return with_gradient(
            torch.dot(weights, losses),
            reached,
            lambda scale: capture.consume(weights * scale, reached),
        )

    return Alignment(losses, scores, weighted)


def _mistakable(shape: Sequence[int], n: int) -> tuple[int, ...]:
    return tuple([0 if size % n else 1 if size == n else 2 for size in shape])


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Captured tensors are already in the precision that autocast chose for each."""
    return (
        torch.autocast(device, enabled=False)
        if torch.is_autocast_enabled(device)
        else nullcontext()
    )


def _padded(weights: Tensor, n: int) -> Tensor:
    """With zeros for the examples after the last weight."""
    missing = n - weights.shape[0]
    return torch.cat([weights, weights.new_zeros(missing)]) if missing else weights


def _add(parts: dict[Origin, Tensor], origin: Origin, part: Tensor | None) -> None:
    if part is not None:
        parts[origin] = parts[origin] + part if origin in parts else part


def _pull_back(parts: dict[Origin, Tensor], parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """From what was computed out of parameters (a transpose, a cast) back to the parameters."""
    derived = [origin for origin in parts if isinstance(origin, GradientEdge)]
    result = [parts.get(parameter) for parameter in parameters]
    if derived:
        # retain_graph: these few nodes stay valid for a second call, at no cost in memory.
        further = torch.autograd.grad(
            derived, list(parameters), [parts[edge] for edge in derived], allow_unused=True,
            retain_graph=True,
        )  # fmt: skip
        for i, part in enumerate(further):
            if part is not None:
                before = result[i]
                result[i] = part if before is None else before + part
    return result


def backward_to(
    losses: Tensor, contacts: Sequence[Contact], factors: Tensor, *, keep: bool
) -> list[Tensor]:
    """The gradient of sum_i factors_i f_i at the result of each contact."""
    if not contacts:
        return []
    outputs = torch.autograd.grad(
        losses,
        [contact.edge for contact in contacts if contact.edge is not None],
        factors,
        retain_graph=keep,
        allow_unused=True,
    )
    return [
        losses.new_zeros(c.shape) if g is None else g
        for c, g in zip(contacts, outputs, strict=True)
    ]
