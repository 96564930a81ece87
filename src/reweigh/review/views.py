"""What the templates are given."""

from __future__ import annotations

from typing import Any

from .cards import card
from .desk import Desk
from .selection import Selection

FEW = 10  # classes that a number key each can choose
MOST_OPTIONS = 2_000
Json = dict[str, Any]


def view(desk: Desk, selection: Selection, row: int | None) -> Json:
    """The card of `row`, else of the first that matches, None if nothing does; and the progress."""
    position = None if row is None else desk.suspects.position(row)
    if position is None:
        position = desk.first(selection)
    shown = None if position is None else card(desk, selection, position)
    return {"card": shown, **progress(desk, selection)}


def progress(desk: Desk, selection: Selection) -> Json:
    """How far the review is, of all and of what is selected."""
    everything = desk.progress()
    here = desk.progress(selection) if selection.narrows else everything
    return {"selection": selection, "progress": everything, "here": here}


def options(desk: Desk) -> dict[str, dict[str, int]]:
    """The labels to filter by and how often they occur; there is no list of numbers."""
    if desk.run.source.task != "classes":
        return {}
    labels = {"given": desk.suspects.given, "suggested": desk.suspects.suggested}
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
