"""Which suspects to show: what a person chose in the page, read from an address's query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np

from .decisions import ACTIONS
from .suspects import NONE, Flags, Suspects

OPEN = "open"
STATES = {"keep": "Kept", "relabel": "Relabelled", "drop": "Dropped", "skip": "Skipped"}
SHOW = {OPEN: "To do", "all": "All", **STATES}
LONGEST_SEARCH = 200


@dataclass(frozen=True)
class SuspectSelection:
    """What to show; empty means any. `show` is a state of the rows, the rest a property of them.

    `hinted` leaves only those that are flagged or, in a run without flags, those with a suggestion: the
    ones whose label the model thinks is wrong.
    """

    show: str = OPEN
    given: str = ""
    suggested: str = ""
    hinted: bool = False
    least: float = -math.inf
    most: float = math.inf
    search: str = ""
    source: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> SuspectSelection:
        """Read from an address; what makes no sense there counts as not chosen."""
        show = query.get("show", OPEN)
        return cls(
            show=show if show in SHOW else OPEN,
            given=query.get("given", ""),
            suggested=query.get("suggested", ""),
            source=query.get("source", ""),
            hinted=query.get("hinted") == "1",
            least=_number(query.get("least"), -math.inf),
            most=_number(query.get("most"), math.inf),
            search=query.get("search", "").strip()[:LONGEST_SEARCH],
        )

    @property
    def query(self) -> str:
        """The address's query that reads as this selection."""
        parts = {"given": self.given, "suggested": self.suggested, "source": self.source,
                 "search": self.search}  # fmt: skip
        if self.show != OPEN:
            parts["show"] = self.show
        if self.hinted:
            parts["hinted"] = "1"
        for name, value in (("least", self.least), ("most", self.most)):
            if math.isfinite(value):
                parts[name] = f"{value:g}"
        return urlencode({name: value for name, value in parts.items() if value})

    @property
    def narrows(self) -> bool:
        """Whether it leaves out suspects for what they are."""
        return SuspectSelection(self.show) != self

    def properties(self, suspects: Suspects) -> Flags:
        """Where labels and suspicion are as chosen; the search is the caller's, who keeps results."""
        chosen = np.ones(len(suspects), dtype=bool)
        if self.given:
            chosen &= suspects.given.equal(self.given)
        if self.suggested:
            chosen &= suspects.suggested.equal(self.suggested)
        if self.source:
            chosen &= suspects.source.equal(self.source)
        if self.hinted:
            flagged = suspects.flagged
            chosen &= suspects.suggested.codes != NONE if flagged is None else flagged
        if math.isfinite(self.least):
            chosen &= suspects.suspicion >= self.least
        if math.isfinite(self.most):
            chosen &= suspects.suspicion <= self.most
        return chosen

    def states(self, states: np.ndarray) -> Flags:
        """Where the state is as chosen: 0 open, then the place in ACTIONS counted from one."""
        if self.show == "all":
            return np.ones(len(states), dtype=bool)
        code = 0 if self.show == OPEN else 1 + ACTIONS.index(self.show)
        return np.asarray(states == code)


def _number(text: str | None, default: float) -> float:
    try:
        number = float(text or "")
    except ValueError:
        return default
    return number if math.isfinite(number) else default
