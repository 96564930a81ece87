"""Which back-end: the one asked for, or the cheapest exact one that can run the model.

Processes that share a batch settle on one together. Each tries the same one; a few numbers then go
round, once per step: whether it could, how far its scores miss a plain backward where that was
looked at, and the sums that the weights are normalised with. One refusal anywhere sends all to the
next back-end, so that none waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..._warn import warn
from ...errors import ReweighError, SettingError, UnsupportedModelError
from ..model import Batch, Direction, MicroBatches, ModelView, empty, require_examples
from ..processes import ALONE, Group, barred, forget_pass
from ..proof import Proof, require_scores
from ..rule import ScoreSums, combined, sums_of
from .base import Alignment, TrainPass, proven
from .chunked import align_in_parts, chunks
from .empty_share import is_empty, nothing, without_statistics
from .ghost import Ghost, SeveralLosses
from .grouped import Groups
from .order import order_for
from .sharded_parts import align_parts_in_shards
from .single_loss import SingleLoss
from .table import BACKENDS, make


class Choice(str):
    """The name of a back-end, with the reason it was chosen."""

    __slots__ = ("exact", "reason")
    exact: bool
    reason: str

    def __new__(cls, name: str, reason: str) -> Choice:
        """Attach a reason to a name from the table, or to "auto" before the first batch."""
        self = super().__new__(cls, name)
        self.reason = reason
        self.exact = name not in BACKENDS or BACKENDS[name].exact
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.reason


class _Failed(UnsupportedModelError):
    """A back-end that met an error of somebody else's."""


@dataclass(frozen=True)
class Settled:
    """An alignment that all agree on. sums: over the joined batch; None where nobody shares it."""

    choice: Choice
    alignment: Alignment
    sums: ScoreSums | None = None


@dataclass(frozen=True)
class _Task:
    """What is to be aligned, by whom. closed: back-ends that need not be tried, with the reason."""

    pass_: TrainPass
    direction: Direction
    group: Group
    closed: Mapping[str, str]


class BackendSelection:
    """The back-ends of one model in one state, with what they remember of it.

    asked:     a name, or "auto".
    choice:    the one that is known to do; None before the first batch.
    ghost:     the ghost back-end, while it is the choice or may become it; it can do more than align.
    exchanges: whether the forward talks between processes; None if nobody has listened yet.
    """

    def __init__(
        self, asked: str, *, chunk: int | None, epsilon: float | None, one_pass: bool | None
    ) -> None:
        self.asked, self.chunk = asked, chunk
        self.choice: Choice | None = None
        self.exchanges: bool | None = None
        self._single, self._groups = SingleLoss(), Groups(one_pass)
        self._backends = {
            name: proven(make(name, epsilon=epsilon, one_pass=one_pass)) for name in BACKENDS
        }
        ghost = self._backends["ghost"]
        self.ghost = ghost if isinstance(ghost, Ghost) and asked in ("auto", "ghost") else None
        if self.ghost is not None:
            self.ghost.by_part = asked == "ghost"

    def settle_on_ghost(self, view: ModelView) -> Choice:
        """Ghost has weighed the first batch and proven itself on it."""
        why = "asked for" if self.asked != "auto" else _why("ghost", view)
        self.choice = Choice("ghost", f"{why}; by both batches in one forward")
        return self.choice

    def shared(
        self, choice: Choice, alignment: Alignment, direction: Direction, group: Group
    ) -> Settled:
        """An alignment that every process has, with the sums over all of them."""
        return Settled(choice, alignment, _consulted(alignment, direction, group)[0])

    def align(self, pass_: TrainPass, direction: Direction, group: Group = ALONE) -> Settled:
        """The train batch along `direction`, by the back-end asked for or the best that can."""
        shared = group.size > 1 or pass_.view.sharded or pass_.view.split
        closed = barred(pass_.view, bool(self.exchanges)) if shared else {}
        if group.size == 1:
            require_examples(pass_.batch, which="train")
        elif closed and (self.chunk is not None or isinstance(pass_.batch, MicroBatches)):
            what = "a window" if self.chunk is None else f"chunk={self.chunk}"
            if self.exchanges or not pass_.view.sharded:
                raise SettingError(
                    f"{what} with a model whose forward exchanges data between processes, "
                    f"which may hold different numbers of chunks; expected one batch per process: take "
                    f"smaller batches instead"
                )
            same_number(group, len(self._parts(pass_.batch)), what)
        settled = self._settle(_Task(pass_, direction, group, closed))
        if len(settled.alignment.losses) == 0 and (settled.sums is None or not settled.sums.count):
            raise empty("train")
        if settled.choice != "ghost":
            self.ghost = None
        elif self.ghost is not None and self.choice != "ghost":  # chosen just now: say how it runs
            reason = f"{settled.choice.reason}; by {self.ghost.engine}"
            settled = replace(settled, choice=Choice("ghost", reason))
        self.choice = settled.choice
        return settled

    def _settle(self, task: _Task) -> Settled:
        if self.asked != "auto":
            if self.asked in task.closed:
                raise UnsupportedModelError(
                    f"{self.asked} {task.closed[self.asked]}; expected a back-end that does without: "
                    f"use backend='auto'"
                )
            settled = self._try(self.choice or Choice(self.asked, "asked for"), task)
            if self.choice is None and not settled.choice.exact:
                reason = f"asked for; {self._how_far(self.asked)}"
                settled = replace(settled, choice=Choice(self.asked, reason))
            return settled
        if self.choice is not None:
            start = task.pass_.view.start
            try:
                return self._try(self.choice, task)
            except UnsupportedModelError:  # the model has taken a path it had not taken before
                start.restore()
        return self._cheapest(task)

    def _cheapest(self, task: _Task) -> Settled:
        refused = [f"{name} {why}" for name, why in task.closed.items()]
        order, why_so = order_for(task.pass_.view)
        candidates = [name for name in order if name not in task.closed]
        start = task.pass_.view.start
        while candidates:
            name = candidates.pop(0)
            why = _why(name, task.pass_.view)
            if why_so and name == "double_backward":
                why = f"{why} ({why_so})"
            choice = Choice(name, "; ".join([why, *refused]))
            try:
                settled = self._try(choice, task, last=not candidates)
            except UnsupportedModelError as error:
                start.restore()
                if isinstance(error, SeveralLosses) and self.ghost and task.group.size == 1:
                    # By its cost it comes after forward_mode, which has all parts in one pass.
                    self.ghost.by_part = True
                    candidates.insert(candidates.index("double_backward"), "ghost")
                    continue
                verb = "failed" if isinstance(error, _Failed) else "refused"
                refused.append(f"{name} {verb}: {error}")
                continue
            if choice.exact:
                return settled
            why = f"nothing exact can run; {self._how_far(name)}"
            warn(f"{why}. {'; '.join(refused)}")
            return replace(settled, choice=Choice(name, "; ".join([why, *refused])))
        raise UnsupportedModelError("no back-end can run this model. " + "; ".join(refused))

    def _how_far(self, name: str) -> str:
        """In words, how far the scores of an approximate back-end are off."""
        error = self._backends[name].error
        if error is None:
            return "scores are approximate (relative error about 1e-2, not measured here)"
        return f"scores are approximate, off by {error:.2g} (relative, measured on the first batch)"

    def _try(self, choice: Choice, task: _Task, *, last: bool = True) -> Settled:
        """One back-end, by all processes; a refusal if any of them refuses."""
        alignment: Alignment | None = None
        refusal: UnsupportedModelError | None = None
        try:
            alignment = self._run(choice, task)
        except UnsupportedModelError as error:
            refusal = error
        except ReweighError:
            raise  # the user's input is wrong, whatever the back-end
        except Exception as error:
            # Unknown territory for this back-end. If it is the user's own bug, the last one shows it.
            if last:
                raise
            refusal = _Failed(f"{type(error).__name__}: {error}")
        if refusal is not None and task.pass_.view.sharded:
            forget_pass(task.pass_.view.model)
        sums, proof = None, None if alignment is None else alignment.proof
        if task.group.size > 1:
            sums, proof, refusing = _consulted(alignment, task.direction, task.group)
            if refusing and refusal is None:
                refusal = UnsupportedModelError(
                    f"process {refusing[0]} cannot run {choice}; its own log says why"
                )
        if refusal is not None:
            raise refusal
        assert alignment is not None
        if proof is not None:
            require_scores(choice, task.pass_.view, proof, alignment.losses, task.direction)
        return Settled(choice, alignment, sums)

    def _parts(self, batch: Batch) -> Sequence[Batch]:
        """The micro-batches of a window, or the chunks of a batch."""
        if isinstance(batch, MicroBatches):
            return batch
        assert self.chunk is not None
        return [batch] if is_empty(batch) else chunks(batch, self.chunk)

    def _run(self, name: str, task: _Task) -> Alignment:
        backend, pass_, direction = self._backends[name], task.pass_, task.direction
        in_parts = self.chunk is not None or isinstance(pass_.batch, MicroBatches)
        if in_parts and pass_.view.sharded:
            return align_parts_in_shards(backend, pass_, direction, self._parts(pass_.batch))
        if task.group.size > 1 and is_empty(pass_.batch):
            if not task.closed:
                none = nothing(pass_.view.model)
                parts = pass_.batch if isinstance(pass_.batch, MicroBatches) else ()
                return replace(none, shapes=[none.losses.shape for _ in parts])
            with without_statistics(pass_.view):
                return backend.align(pass_, direction)
        single = self._single if self.asked == "auto" else None
        if in_parts:
            groups = self._groups if isinstance(pass_.batch, MicroBatches) else None
            joined = groups and groups.align(backend, pass_, direction, single)
            if joined:
                return joined
            return align_in_parts(backend, pass_, direction, self._parts(pass_.batch), single)
        return backend.align(pass_, direction)


def same_number(group: Group, count: int, what: str) -> None:
    """Raise, on every process, unless all have as many parts: where parameters are sharded, every pass is
    an exchange."""
    counts = group.gathered(torch.tensor([count])).flatten().tolist()
    if len(set(counts)) > 1:
        raise SettingError(
            f"{what} with parameters that fully_shard has spread, cut into {count} parts here and into "
            f"{counts} on the processes in order; expected as many everywhere, since every pass gathers "
            f"the parameters: give all processes as many micro-batches (they may be empty)"
        )


def _why(name: str, view: ModelView) -> str:
    kind = type(view.model).__name__
    cost = BACKENDS[name].cost
    return f"the cheapest exact back-end for {kind}, proven on the first batch; it adds {cost}"


def _consulted(
    alignment: Alignment | None, direction: Direction, group: Group
) -> tuple[ScoreSums, Proof | None, Sequence[int]]:
    """The sums over all processes, their proof if any had one, and who refuses."""
    like = direction.parameters[0]
    scores = torch.zeros(0, device=like.device) if alignment is None else alignment.scores
    verdict = torch.zeros(
        5, dtype=torch.float64, device=scores.device
    )  # refuses, has a proof, proof
    if alignment is None:
        verdict[0] = 1
    elif alignment.proof is not None:
        verdict[1] = 1
        verdict[2:] = alignment.proof.row()
    # Read once, here: all that follows depends on it, on every process alike.
    rows = group.gathered(torch.cat([verdict, sums_of(scores).row()])).cpu()
    proof = Proof(*rows[:, 2:5].sum(0)) if rows[:, 1].any() else None
    return combined(rows[:, 5:]), proof, rows[:, 0].nonzero().flatten().tolist()
