"""Suspects with the same error: given one label, suggested another, from the same source."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .suspects import NONE, Suspects

MOST = 50
"""Groups shown; the largest first."""


@dataclass(frozen=True)
class SuspectGroup:
    """`rows` by index. The means are over rows where they are known; None where they are of none."""

    given: str
    suggested: str
    source: str | None
    rows: tuple[int, ...]
    p_wrong: float | None
    p_suggested: float | None


def groups(suspects: Suspects, positions: Iterable[int]) -> list[SuspectGroup]:
    """Of the suspects at these positions that have a suggestion, the largest groups first."""
    members: dict[tuple[int, int, int], list[int]] = {}
    for position in positions:
        given, suggested = suspects.given.codes[position], suspects.suggested.codes[position]
        if NONE not in (given, suggested) and suspects.given.name(
            position
        ) != suspects.suggested.name(position):
            key = (int(given), int(suggested), int(suspects.source.codes[position]))
            members.setdefault(key, []).append(position)
    largest = sorted(members.values(), key=lambda each: (-len(each), each[0]))
    return [_group(suspects, np.array(each)) for each in largest[:MOST]]


def _group(suspects: Suspects, positions: np.ndarray) -> SuspectGroup:
    first = int(positions[0])
    return SuspectGroup(
        given=suspects.given.name(first) or "",
        suggested=suspects.suggested.name(first) or "",
        source=suspects.source.name(first),
        rows=tuple(suspects.index[positions].tolist()),
        p_wrong=_mean(suspects.p_wrong[positions]),
        p_suggested=_mean(suspects.p_suggested[positions]),
    )


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
