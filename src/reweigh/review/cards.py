"""What the page says about one suspect."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DataError
from ..runs import Suspect
from . import images, showing
from .decisions import Decision
from .desk import Desk, Place
from .selection import Selection

SMALL = 160  # pixels; smaller images are enlarged with their pixels kept sharp
STATES = {"keep": "Kept", "relabel": "Relabelled", "drop": "Dropped", "skip": "Skipped"}


@dataclass(frozen=True)
class Card:
    """A suspect, its place and its example as shown; `problem` is why there is nothing to show."""

    suspect: Suspect
    place: Place
    state: str | None
    suggestion: str | None
    text: showing.Shown | None = None
    cells: tuple[tuple[str, showing.Shown], ...] = ()
    more_cells: int = 0
    picture: images.Picture | None = None
    problem: str | None = None

    @property
    def small(self) -> bool:
        """Whether the image is to be enlarged."""
        return self.picture is not None and max(self.picture.width, self.picture.height) <= SMALL


def card(desk: Desk, selection: Selection, position: int) -> Card:
    """The card of the suspect at a position."""
    suspect, source = desk.suspects.at(position), desk.run.source
    agrees = suspect.suggested_label == suspect.given_label
    common = {
        "suspect": suspect,
        "place": desk.place(selection, position),
        "state": state(desk.history.of(suspect.index)),
        "suggestion": None if agrees else suspect.suggested_label,
    }
    if source.kind == "text":
        text = showing.shortened(suspect.example, showing.LONGEST_TEXT)
        return Card(**common, text=text)  # type: ignore[arg-type]
    if source.kind == "table":
        cells, more = showing.cells(suspect.example, target=source.target)
        return Card(**common, cells=tuple(cells), more_cells=more)  # type: ignore[arg-type]
    try:
        return Card(**common, picture=images.picture(source.data, suspect.example))  # type: ignore[arg-type]
    except DataError as error:
        return Card(**common, problem=showing.visible(str(error)))  # type: ignore[arg-type]


def state(decision: Decision | None) -> str | None:
    """A decision in words.

    >>> state(Decision(3, "relabel", "dog"))
    'Relabelled to dog'
    """
    if decision is None:
        return None
    to = f" to {showing.label(decision.label)}" if decision.label is not None else ""
    return STATES[decision.action] + to
