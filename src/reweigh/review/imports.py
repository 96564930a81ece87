"""Decisions that people made in another tool, taken over as if they had been made in the page.

The label that the tool chose is the given one: keep. It is another one: relabel. The tool says so: drop.
Rows about which people disagreed are left to do. Taking the same file over again changes nothing.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from ..exchange import Answer, read_answers
from ..runs import TrainedRun
from .decisions import Decision
from .review_state import ReviewState


@dataclass(frozen=True)
class Imported:
    """How many decisions are new, how many stood already, and about how many rows people disagreed."""

    new: int
    known: int
    disagreed: int


def import_answers(run: TrainedRun, path: Path) -> Imported:
    """Take over the decisions in an export of Label Studio, all of them or none."""
    answers = read_answers(path)
    state = ReviewState(run)
    try:
        made = []
        for answer in answers:
            _check(state, answer, path)
            if not answer.disagreed:
                action = "drop" if answer.drop else "relabel"
                made.append(Decision(answer.index, action, answer.label))
        new = len(state.decide_all(made))
    finally:
        state.close()
    return Imported(new, len(made) - new, len(answers) - len(made))


def _check(state: ReviewState, answer: Answer, path: Path) -> None:
    """That the row is the one that was looked at, as far as its given label tells."""
    position = state.suspects.position(answer.index)
    if position is None:
        raise DataError(
            f"{path}: row {answer.index} is not among the suspects of this run; expected a file made "
            "from its own `reweigh audit --format label-studio`"
        )
    given = state.suspects.given.name(position) or ""
    if not _same(answer.given, given):
        raise DataError(
            f"{path}: row {answer.index} was given {answer.given!r} there and {given!r} in this run; "
            "expected the tasks of this run"
        )


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    except ValueError:
        return False
