"""Ghost where `fully_shard` has spread the parameters.

    score_i = sum over contacts of < g_i, (d op / d W) . V >          V: the clean gradient for W

The inputs of the layers and the gradients g at their results are a process's own. Only V must be whole, and
only where it meets a layer: so the shards of V are gathered for one unit of fully_shard, its contacts add
their part of the scores, and the unit is let go. The update is assembled in the same way: of each unit the
whole gradient, sum_i w_i g_i a_i', is reduced to shards before the next one is made.

Cost in bytes, in sizes of the parameters, where fully_shard gathers anew for every pass: the forward 1, the
backward to the results 1, V 1, the update 1. Memory: that of ghost, and one unit's V or gradient.

Every pass is an exchange, so all processes must run as many of them. What one finds out alone (a proof that is
due, a layer it cannot read, a coupling) is told to all before anyone acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import UnsupportedModelError
from ...clean import on_stand_ins, whole_values
from ...model import Direction, ModelView, differentiable_losses, with_gradient
from ...processes import Shard, ShardedUnit, units_of
from ...proof import half_probe
from ...rounding import UNIFORM, Rounding, strict
from ..base import Alignment, TrainPass
from ..sharded_proof import agreed, require_sharded_update
from .contact import Contact
from .coupling import layouts_of
from .engine import Capture, GhostPass, Layouts, PlaceRecords, backward_to, scores_of
from .example_rows import Layout
from .from_graph import RecordedContact, read


class CapturedUnit(NamedTuple):
    """The contacts of one unit, and what a backward has left at their results."""

    unit: ShardedUnit
    shards: list[Shard]  # the aligned ones
    contacts: list[RecordedContact]
    outputs: list[Tensor]
    layouts: list[Layout]


def sharded_pass(pass_: TrainPass, direction: Direction, records: PlaceRecords) -> ShardedPass:
    """The engine for sharded parameters: a plain forward, whose graph is read."""
    view = pass_.view
    with view.plain_recurrence(), torch.enable_grad():
        losses = differentiable_losses(view.model, pass_.loss, pass_.batch, which="train")
    return pass_of(view, losses, direction, records)


def pass_of(
    view: ModelView, losses: Tensor, direction: Direction, records: PlaceRecords
) -> ShardedPass:
    """The pass that made `losses`. direction: for the parameters and processes; its values may be missing."""
    units = units_of(view.model, direction.parameters)
    leaves = {shard.place: shard.whole for unit in units for shard in unit.aligned}
    theta = [leaves[place] for place in range(len(direction.parameters))]
    with view.beside_the_step():
        reading = read(losses, theta)
    told(
        direction,
        None
        if reading is not None
        else UnsupportedModelError(
            "a parameter that fully_shard has spread is used by an operation that ghost cannot read "
            "off the graph: use backend='auto' or 'forward_mode'"
        ),
    )
    assert reading is not None
    run = ShardedPass(
        view, losses, reading.contacts, reading.leaves, (reading.path, len(losses) == 1), records,
        by_data=reading.by_data,
    )  # fmt: skip
    run.units, run.theta = units, theta
    return run


def told(direction: Direction, refusal: UnsupportedModelError | None) -> None:
    """Raise on every process if one of them refuses."""
    if agreed(direction, [refusal is not None])[0]:
        raise refusal or UnsupportedModelError(
            "another process cannot run ghost; its own log says why"
        )


class ShardedPass(GhostPass):
    """A pass of one process of several, which all do the same."""

    units: list[ShardedUnit]
    theta: list[Tensor]  # the whole parameters, as the graph knows them
    _own_due = False
    _agreed_due: bool | None = None
    separate = False
    reached: Sequence[bool] = ()

    def due(self) -> bool:
        """Whether this pass must be measured and proven; by any process, once that was asked."""
        if self._agreed_due is not None:
            return self._agreed_due
        return len(self.losses) > 0 and super().due()

    def assembles(self, parameters: Sequence[Tensor]) -> bool:
        """As ever; the graph ends in whole parameters, and the model holds sharded ones."""
        if self.view.backward_hooked():
            return False
        aligned = {id(p) for p in parameters}
        return self.view.trained() == aligned and self.leaves <= {id(p) for p in self.theta}

    def agree(self, direction: Direction) -> None:
        """Ask the other processes: whether a proof is due, whether rows are moved by data, whether the
        update must go through the graph, and which parameters the loss reaches."""
        self._own_due = self.due()
        flags = agreed(
            direction,
            [self._own_due, self.by_data, not self.assembles(direction.parameters),
             *(id(p) in self.leaves for p in self.theta)],
        )  # fmt: skip
        self._agreed_due, self.by_data, self.separate, *self.reached = flags
        if self._agreed_due:
            told(direction, self._unseen(direction))

    def align(self, direction: Direction) -> Alignment:
        """The scores along `direction`, and the way to the update."""
        self.agree(direction)
        losses, due, separate = self.losses, self.due(), self.separate
        # The backward of the capture takes the place of the user's where the update is assembled.
        with self.view.beside_the_step() if separate else nullcontext():
            layouts = self.agreed_layouts(direction)
            capture = self.capture(layouts, None, keep=due or separate)
        shares = self.shares(capture)
        scores = self.scores(shares, direction)
        if due:
            with self.view.beside_the_step():
                self.prove(shares, losses, scores, direction)
        self.remember(layouts)
        if separate:
            return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
        return assembled_in_shards(
            losses.detach(), scores, shares, direction, self.reached, len(losses)
        )

    def prove(
        self, shares: Sequence[CapturedUnit], losses: Tensor, scores: Tensor, direction: Direction
    ) -> None:
        """Raise, on every process, unless autograd finds the same update and scores for these losses."""
        rows = len(self.losses)
        require_sharded_update(
            self.view, losses, scores, direction,
            lambda w: _assembled(list(shares), w, self.reached, rows), self.units[0],
        )  # fmt: skip

    def remember(self, layouts: Layouts) -> None:
        """As ever; what is remembered is a process's own."""
        self._agreed_due = self._own_due
        if len(self.losses):
            super().remember(layouts)

    def _unseen(self, direction: Direction) -> UnsupportedModelError | None:
        try:
            self.require_seen(direction.names, self.theta)
        except UnsupportedModelError as error:
            return error
        return None

    def agreed_layouts(self, direction: Direction) -> Layouts:
        """As `layouts`; all processes run the same backward passes, also one that has no examples."""
        record = self._record
        if not self.due() and not self.by_data:
            return record.value.layouts if record is not None else self._any_layouts()
        losses, factors = self.losses, half_probe(self.losses)
        ones = torch.ones_like(losses)
        plain, scaled, again = (
            backward_to(losses, self.contacts, f, keep=True)
            for f in (ones, factors, ones * UNIFORM)
        )
        self._plain = plain
        layouts, refusal = self._any_layouts(), None
        if len(losses) > 1:  # one example is everywhere
            try:
                layouts, self.certain = layouts_of(
                    self.contacts, plain, scaled, factors,
                    close=strict(self.view.precision(losses)),
                    rounding=Rounding(plain, lambda c: again),
                    names={id(p): n for n, p in zip(direction.names, self.theta, strict=True)},
                )  # fmt: skip
            except UnsupportedModelError as error:
                refusal = error
        told(direction, refusal)
        return layouts

    def _any_layouts(self) -> Layouts:
        return tuple(Layout(0, major=True) for _ in self.contacts)

    def shares(self, capture: Capture) -> list[CapturedUnit]:
        """What was captured, unit by unit. A contact with parameters of two units is in both."""
        shares = []
        contacts = [c for c in capture.contacts if isinstance(c, RecordedContact)]
        for unit in self.units:
            mine = {id(shard.whole) for shard in unit.aligned}
            chosen = [i for i, c in enumerate(contacts) if mine & set(c.roots())]
            shares.append(
                CapturedUnit(
                    unit,
                    unit.aligned,
                    [contacts[i] for i in chosen],
                    [capture.outputs[i] for i in chosen],
                    [capture.layouts[i] for i in chosen],
                )
            )
        return shares

    def scores(self, shares: Sequence[CapturedUnit], direction: Direction) -> Tensor:
        """[n]: the sum over all contacts; V is whole for one unit at a time."""
        scores = torch.zeros_like(self.losses, requires_grad=False)
        for share in shares:
            if not share.shards:
                continue
            values = whole_values(share.unit, direction.values)
            if not len(scores):
                continue
            scores = scores + scores_of(
                share.contacts, share.outputs, tuple(share.layouts), values, self.losses.detach()
            )
        return scores


def assembled_in_shards(
    losses: Tensor, scores: Tensor, shares: list[CapturedUnit], direction: Direction,
    reached: Sequence[bool], rows: int,
) -> Alignment:  # fmt: skip
    """An alignment whose update comes from what was captured of `rows` examples, of which those that have
    losses here come first."""
    inputs = [p for p, used in zip(direction.parameters, reached, strict=True) if used]

    def weighted(weights: Tensor) -> Tensor:
        def gradient(scale: Tensor) -> list[Tensor | None]:
            found = _assembled(shares, weights * scale, reached, rows)
            return [g for g, used in zip(found, reached, strict=True) if used]

        return with_gradient(torch.dot(weights, losses), inputs, gradient)

    return Alignment(losses, scores, weighted)


def _assembled(
    shares: list[CapturedUnit], weights: Tensor, reached: Sequence[bool], n: int
) -> list[Tensor | None]:
    """The mean over the processes of grad sum_i weights_i f_i, in shards, one per aligned parameter.

    Empties `shares`; what a unit has captured is freed with it.
    """
    found: list[Tensor | None] = [None] * len(reached)
    while shares:
        unit, shards, contacts, outputs, layouts = shares.pop(0)
        shards = [s for s in shards if s.place is not None and reached[s.place]]
        wholes: list[Tensor | None] = [None] * len(shards)
        if n:
            known: list[Contact] = [replace(c, layer=on_stand_ins(c.layer)) for c in contacts]
            capture = Capture(known, list(outputs), tuple(layouts), n)
            del contacts, outputs, known
            wholes = capture.consume(weights, [s.whole for s in shards])
        for shard, gradient in zip(shards, unit.reduced(shards, wholes), strict=True):
            assert shard.place is not None
            found[shard.place] = gradient
    return found
