"""What a ranking says of one row, the same for run folders of every version.

    wrong          p_wrong, the probability that the label is wrong; a run without it: the suspicion
    suggested      the most probable other label, or the suggested one; None where there is neither
    p_suggested    its probability; None where it was not kept
    flagged        whether the row is flagged; a run without flags: whether a label is suggested

`columns` names the columns behind them. A missing value of a column counts as a missing column.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..tables import Piece

WRONG = ("p_wrong", "probability_wrong", "suspicion")
SUGGESTED = ("suggested", "suggested_label")
SURE = ("p_suggested", "probability")
FLAG = ("flag", "flagged")


@dataclass(frozen=True)
class RankedRow:
    """One row of a ranking."""

    index: int
    given: str
    wrong: float
    suggested: str | None
    p_suggested: float | None
    flagged: bool


def ranked_rows(piece: Piece) -> Iterator[RankedRow]:
    """The rows of a pyarrow table or record batch of audit.parquet, in its order."""
    for row in piece.to_pylist():
        suggested = _first(row, SUGGESTED)
        flag = _first(row, FLAG)
        sure = None if suggested is None else _first(row, SURE)
        yield RankedRow(
            index=row["index"],
            given=row["given_label"],
            wrong=float(_first(row, WRONG) or 0.0),
            suggested=suggested,
            p_suggested=None if sure is None else float(sure),
            flagged=row.get("suggested_label") is not None if flag is None else bool(flag),
        )


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first value that is there; NaN is not."""
    for name in names:
        value = row.get(name)
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            return value
    return None
