"""What the templates are given: the card of one suspect, the progress, labels to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..errors import DataError
from ..runs import Json, Suspect
from . import suspect_image, visible_text
from .decisions import Decision
from .review_state import ReviewState, WalkPlace
from .suspect_selection import STATES, SuspectSelection

FEW = 10  # classes: each gets a number key
MOST_OPTIONS = 2_000
HEARD = 160  # characters of a checked row that speaks against a suspect
SURE = 0.5  # from this probability on, a suggestion is the first thing offered
SMALL = 160  # pixels; smaller images are enlarged with their pixels kept sharp


@dataclass(frozen=True)
class Card:
    """A suspect, its place and its example as shown; `problem` is why there is nothing to show."""

    suspect: Suspect
    place: WalkPlace
    state: str | None
    suggestion: str | None
    p_suggestion: float | None
    against: tuple[ShownVoice, ...]
    text: visible_text.ShownText | None = None
    cells: tuple[tuple[str, visible_text.ShownText], ...] = ()
    more_cells: int = 0
    picture: suspect_image.Picture | None = None
    problem: str | None = None

    @property
    def small(self) -> bool:
        """Whether the image is to be enlarged."""
        return self.picture is not None and max(self.picture.width, self.picture.height) <= SMALL

    @property
    def prominent(self) -> bool:
        """Whether the suggestion is likely enough to be offered before anything else."""
        return self.p_suggestion is None or self.p_suggestion >= SURE


@dataclass(frozen=True)
class ShownVoice:
    """A checked row that speaks against a suspect: its place there, its label, and its content."""

    place: int
    label: str
    text: visible_text.ShownText | None


def card(review: ReviewState, selection: SuspectSelection, position: int) -> Card:
    """The card of the suspect at a position."""
    suspect, source = review.suspects.at(position), review.run.source
    suggested = suspect.suggested_label if suspect.suggested is None else suspect.suggested
    sure = suspect.probability if suspect.suggested is None else suspect.p_suggested
    shown = partial(
        Card,
        suspect,
        review.place(selection, position),
        state=in_words(review.history.of(suspect.index)),
        suggestion=None if suggested == suspect.given_label else suggested,
        p_suggestion=None if suggested is None else sure,
        against=_against(review, suspect.index),
    )
    if source.kind == "text":
        return shown(text=visible_text.shortened(suspect.example, visible_text.LONGEST_TEXT))
    if source.kind == "table":
        cells, more = visible_text.cells(suspect.example, target=source.target)
        return shown(cells=tuple(cells), more_cells=more)
    try:
        return shown(picture=suspect_image.picture(source.data, suspect.example))
    except DataError as error:
        return shown(problem=visible_text.visible(str(error)))


def _against(review: ReviewState, index: int) -> tuple[ShownVoice, ...]:
    """The checked rows that speak against a suspect, the loudest first."""
    found, kind = [], review.run.source.kind
    for place, voice in enumerate(review.voices.get(index, [])):
        if voice.product < 0:
            text = None
            if kind == "text":
                text = visible_text.shortened(voice.example, HEARD)
            elif kind == "table":
                cells, _ = visible_text.cells(voice.example, target=review.run.source.target)
                listed = ", ".join(f"{name} {cell.text}" for name, cell in cells if cell.text)
                text = visible_text.shortened(listed, HEARD)
            found.append(ShownVoice(place, voice.label, text))
    return tuple(found)


def in_words(decision: Decision | None) -> str | None:
    """A decision in words.

    >>> in_words(Decision(3, "relabel", "dog"))
    'Relabelled to dog'
    """
    if decision is None:
        return None
    to = f" to {visible_text.label(decision.label)}" if decision.label is not None else ""
    return STATES[decision.action] + to


def view(review: ReviewState, selection: SuspectSelection, row: int | None) -> Json:
    """The card of `row`, else of the first that matches, None if nothing does; and the progress."""
    position = None if row is None else review.suspects.position(row)
    if position is None:
        position = review.first(selection)
    shown = None if position is None else card(review, selection, position)
    return {"card": shown, **progress(review, selection)}


def progress(review: ReviewState, selection: SuspectSelection) -> Json:
    """How far the review is, of all and of what is selected."""
    everything = review.progress()
    here = review.progress(selection) if selection.narrows else everything
    precision = review.precision()
    return {"selection": selection, "progress": everything, "here": here, "precision": precision}


def options(review: ReviewState) -> dict[str, dict[str, int]]:
    """The labels to filter by and how often they occur; there is no list of numbers."""
    if review.run.source.task != "classes":
        return {}
    labels = {"given": review.suspects.given, "suggested": review.suspects.suggested}
    if review.suspects.source.names:
        labels["source"] = review.suspects.source
    return {
        name: dict(list(column.counts().items())[:MOST_OPTIONS]) for name, column in labels.items()
    }


def choices(classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Key and label of every class, if they are few; digits are their own keys.

    >>> choices(("cat", "dog")), choices(("7", "3"))
    ([('1', 'cat'), ('2', 'dog')], [('7', '7'), ('3', '3')])
    """
    if len(classes) > FEW:
        return []
    if all(len(name) == 1 and name in "0123456789" for name in classes):
        return [(name, name) for name in classes]
    return list(zip("1234567890", classes, strict=False))
