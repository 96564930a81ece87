"""How far a run is over all its stages, and how long it will still take.

share   sum of the work of finished stages, and of the part of this one that is done, of all
left    time since the first sign * (1 - share) / (share - share at that sign)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

LINE_SECONDS = 5.0
SETTLED = 0.01
"""Of the work; before that much is done, no time is told."""


class StagePlan(Protocol):
    """A stage of a run: its name, and its work in any unit."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def work(self) -> float: ...  # noqa: D102


class TimeLeft:
    """`show(what, share)` is called at every sign, `line(text)` every few seconds."""

    def __init__(
        self,
        show: Callable[[str, float], None] = lambda what, share: None,
        line: Callable[[str], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show, self._line, self._clock = show, line, clock
        self._stages: dict[str, tuple[float, float]] = {}
        self._total, self._now = 0.0, ""
        self._first: tuple[float, float] | None = None
        self._next = clock() + LINE_SECONDS

    def plan(self, stages: Sequence[StagePlan]) -> None:
        """The stages in order."""
        done = 0.0
        for stage in stages:
            self._stages[stage.name] = (done, stage.work)
            done += stage.work
        self._total = done

    def at(self, stage: str, part: float, *, detail: str = "") -> None:
        """This `part` of a stage is done. One that is not planned is the work of the stage before it."""
        if stage in self._stages:
            self._now = stage
        before, work = self._stages.get(self._now, (0.0, 0.0))
        share = min(1.0, (before + work * part) / self._total) if self._total else 0.0
        clock = self._clock()
        if self._first is None and self._total:
            self._first = (clock, share)
        self._show(stage, share)
        if self._line is not None and clock >= self._next:
            self._next = clock + LINE_SECONDS
            left = self.left(share)
            self._line(f"{stage}: {detail or f'{part:.0%}'}{f', {left}' if left else ''}")

    def left(self, share: float) -> str:
        """The time left in words; nothing where too little is done to tell."""
        if self._first is None:
            return ""
        begun, first = self._first
        if share - first < SETTLED:
            return ""
        return f"about {in_words((self._clock() - begun) * (1 - share) / (share - first))} left"


def in_words(seconds: float) -> str:
    """
    >>> in_words(12.3), in_words(100), in_words(5000), in_words(200_000)
    ('12 s', '2 min', '1.4 h', '56 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400 / 1.5:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:.0f} h"
