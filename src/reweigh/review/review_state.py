"""A review in progress: the suspects, what was decided about them, and which one comes next.

The arrow keys walk through the rows that match the selection. While it shows what is to do, decided
rows stay in that walk, so that one can look back. A decision leads to the next row that is still to do
in the selection; after the last row comes the first.
"""

import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..errors import SettingError, unknown
from ..runs import TrainedRun
from .decisions import ACTIONS, UNDO, Decision, Decisions, check_shape
from .groups import SuspectGroup, groups
from .precision import ListPrecision, list_precision
from .suspect_selection import OPEN, SuspectSelection
from .suspects import Flags, Suspects

KEPT_SEARCHES = 4


@dataclass(frozen=True)
class ReviewProgress:
    """How many suspects there are, and how many have which state."""

    total: int
    counts: dict[str, int]

    @property
    def decided(self) -> int:
        """Kept, relabelled or dropped; what was skipped is yet to be decided."""
        return self.total - self.counts[OPEN] - self.counts["skip"]


@dataclass(frozen=True)
class WalkPlace:
    """Where a suspect stands among those one can walk through, and the rows around it.

    `after` is where a decision will lead; None if nothing will be left.
    """

    number: int
    count: int
    previous: int | None
    following: int | None
    after: int | None


class ReviewState:
    """The state of a review. One lock, so that two tabs see the same order of events.

    history     what was decided so far
    voices      by suspect, the checked rows that speak against it and for it
    repaired    bytes of a torn last line that were removed on opening
    """

    def __init__(self, run: TrainedRun) -> None:
        self.run = run
        self.suspects = Suspects(run.suspects)
        self.voices = run.voices()
        self._decisions = Decisions(run.decisions, check=self._check)
        self.history, self.repaired = self._decisions.history, self._decisions.repaired
        self._lock = threading.Lock()
        self._states = np.zeros(len(self.suspects), dtype=np.int8)
        for index in self.history.standing():
            self._note(index)
        self._containing = lru_cache(KEPT_SEARCHES)(
            lambda text: self.suspects.containing(text, cells=run.source.kind == "table")
        )

    def close(self) -> None:
        """Free the file of decisions for another process."""
        self._decisions.close()

    def standing(self) -> Mapping[int, Decision]:
        """What stands now, by row, in the order of the rows."""
        with self._lock:
            return self.history.standing()

    def progress(self, selection: SuspectSelection | None = None) -> ReviewProgress:
        """How far the review is: of all suspects, or of those with the properties of a selection."""
        states = self._states if selection is None else self._states[self._matching(selection)]
        counts = np.bincount(states, minlength=1 + len(ACTIONS)).tolist()
        return ReviewProgress(len(states), dict(zip((OPEN, *ACTIONS), counts, strict=True)))

    def decide(self, decision: Decision) -> Decision:
        """Write a decision about a suspect, as it comes back; the last one wins.

        To relabel a row with the label it has is to keep it.
        """
        decision = self._plain(decision)
        self._write([decision])
        return decision

    def decide_all(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Write decisions in one go, all or none; those that changed something, as they came to be."""
        plain = [self._plain(decision) for decision in decisions]
        changed = [made for made in plain if not made.says(self.history.of(made.index))]
        if changed:
            self._write(changed)
        return changed

    def _write(self, decisions: list[Decision]) -> None:
        with self._lock:
            self._decisions.add(*decisions)
            for decision in decisions:
                self._note(decision.index)

    def _plain(self, decision: Decision) -> Decision:
        """A decision as it is written, checked."""
        self._check(decision)
        if decision.action == UNDO:
            raise unknown("action", UNDO, ACTIONS)
        position = self.suspects.position(decision.index)
        if position is None:
            raise SettingError(
                f"row {decision.index} is not among the suspects; expected one that is"
            )
        if decision.label is not None:
            decision = replace(decision, label=self.run.source.label(decision.label))
            if decision.label == self.suspects.given.name(position):
                decision = Decision(decision.index, "keep")
        return decision

    def undo(self, index: int | None = None) -> int | None:
        """Take back the last decision about a row, or the last of all; which row it was about."""
        with self._lock:
            index = self.history.latest if index is None else index
            if index is None or self.history.of(index) is None:
                return None
            self._decisions.add(Decision(index, UNDO))
            self._note(index)
            return index

    def groups(self, selection: SuspectSelection) -> list[SuspectGroup]:
        """Of the suspects still to do in a selection, those with the same error, most first.

        Flagged ones only or, in a run without flags, those with a suggestion.
        """
        if self.run.source.task != "classes":
            return []
        return groups(self.suspects, self._open(selection))

    def decide_group(
        self, selection: SuspectSelection, asked: SuspectGroup, action: str
    ) -> tuple[str, int]:
        """Decide about all rows of a group in one go; the name of the decisions, and how many.

        `asked.rows` are those that the person was shown. If others are to do by now, nothing is decided.
        """
        for group in self.groups(selection):
            same = (group.given, group.suggested, group.source) == (
                asked.given, asked.suggested, asked.source
            )  # fmt: skip
            if same and len(group.rows) == len(asked.rows):
                name = secrets.token_hex(8)
                label = group.suggested if action == "relabel" else None
                made = [Decision(index, action, label, name) for index in group.rows]
                return name, len(self.decide_all(made))
        raise SettingError(
            f"the rows given {asked.given!r} and suggested {asked.suggested!r} are no longer the "
            f"{len(asked.rows):,} that were shown; look at the groups again"
        )

    @property
    def latest(self) -> Decision | None:
        """The decision made last, of those not undone."""
        with self._lock:
            index = self.history.latest
            return None if index is None else self.history.of(index)

    def undo_group(self, name: str) -> list[int]:
        """Take back what still stands of the decisions of a group; the rows."""
        with self._lock:
            rows = self.history.of_group(name)
            if rows:
                self._decisions.add(*(Decision(index, UNDO) for index in rows))
                for index in rows:
                    self._note(index)
            return rows

    def precision(self) -> ListPrecision:
        """How many of the labels that were looked at one by one were wrong."""
        decided = []
        for index, made in self.standing().items():
            position = self.suspects.position(index)
            suggested = None if position is None else self.suspects.suggested.name(position)
            decided.append((made, suggested))
        return list_precision(decided)

    def _open(self, selection: SuspectSelection) -> list[int]:
        """The positions in a selection that are to do, and are flagged or have a suggestion."""
        todo = replace(selection, show=OPEN, hinted=True)
        found: list[int] = np.flatnonzero(self._matching(todo) & todo.states(self._states)).tolist()
        return found

    def first(self, selection: SuspectSelection) -> int | None:
        """The position to begin at; None if nothing matches."""
        matching = np.flatnonzero(self._matching(selection) & selection.states(self._states))
        return int(matching[0]) if len(matching) else None

    def after(self, selection: SuspectSelection, position: int) -> int | None:
        """Where a decision about `position` leads; None if nothing will be left."""
        flags = self._matching(selection) & selection.states(self._states)
        if selection.show != "all":
            flags[position] = False
        matching = np.flatnonzero(flags)
        following = matching[np.searchsorted(matching, position, side="right") :]
        if len(following):
            return int(following[0])
        if selection.show == "all":
            return position
        return int(matching[0]) if len(matching) else None

    def place(self, selection: SuspectSelection, position: int) -> WalkPlace:
        """Where `position` stands in the walk of the arrow keys."""
        flags = self._matching(selection)
        if selection.show != OPEN:
            flags = flags & selection.states(self._states)
        walk = np.flatnonzero(flags)
        before = int(np.searchsorted(walk, position))
        here = before < len(walk) and walk[before] == position
        around = [before - 1, before + 1 if here else before]
        rows = [self._row(walk[at]) if 0 <= at < len(walk) else None for at in around]
        after = self.after(selection, position)
        return WalkPlace(
            number=before + 1 if here else 0,
            count=len(walk),
            previous=rows[0],
            following=rows[1],
            after=None if after is None else self._row(after),
        )

    def _check(self, decision: Decision) -> None:
        check_shape(decision, rows=self.run.source.rows, label=self.run.source.label)

    def _row(self, position: int) -> int:
        return int(self.suspects.index[position])

    def _matching(self, selection: SuspectSelection) -> Flags:
        chosen = selection.properties(self.suspects)
        return chosen & self._containing(selection.search) if selection.search else chosen

    def _note(self, index: int) -> None:
        position = self.suspects.position(index)
        if position is not None:
            decision = self.history.of(index)
            self._states[position] = 1 + ACTIONS.index(decision.action) if decision else 0
