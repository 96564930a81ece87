"""The first look at a table: every label, which rows are marked as checked, and a sample of rows.

One pass, bounded memory: labels take 16 bytes per row, the sample at most `SAMPLE_ROWS` rows. Every
row draws a key, and the rows with the smallest keys stay in the sample: so each row is equally likely,
though nobody knows in advance how long the table is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..rng import Draws
from .cells import Condition, arrow, count_infinite, label_words, unreadable
from .labels import GivenLabels, LabelScan
from .reader import Piece, Table

SAMPLE_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Scan:
    """How many rows there are; their labels; which are marked [rows]; the sample and its rows' indices.

    infinite    how many labels are infinite, where they are numbers
    """

    rows: int
    labels: GivenLabels
    marked: npt.NDArray[np.bool_]
    sample: Any = None
    sample_rows: npt.NDArray[np.int64] | None = None
    infinite: int = 0


def scan_table(
    table: Table,
    target: str,
    *,
    marking: Condition | None = None,
    columns: Sequence[str] = (),
    capacity: int = SAMPLE_ROWS,
    seed: int = 0,
) -> Scan:
    """Read `table` once; the sample has `columns` of rows that have a label and are not marked."""
    needed = list(dict.fromkeys([target, *columns, *([marking.column] if marking else [])]))
    labels, marks, sampler = LabelScan(), [], _Sample(capacity, seed)
    rows = infinite = 0
    for piece in table.pieces(needed):
        if what := unreadable(piece.column(target)):
            raise DataError(
                f"{table.path}: the target {target!r} {what}; expected words or numbers"
            )
        labels.add(piece.column(target))
        infinite += count_infinite(piece.column(target))
        mark = np.zeros(piece.num_rows, dtype=bool)
        if marking:
            mark = marking.meets(piece.column(marking.column))
        marks.append(mark)
        if columns:
            usable = ~mark & ~np.asarray(label_words(piece.column(target)).is_null())
            sampler.add(piece.select(list(columns)), rows, usable)
        rows += piece.num_rows
    if not rows:
        raise DataError(f"{table.path} has no rows; expected a header line and rows")
    sample, sample_rows = sampler.finish() if columns else (None, None)
    return Scan(rows, labels.finish(), np.concatenate(marks), sample, sample_rows, infinite)


class _Sample:
    """The `capacity` rows with the smallest keys so far; at most twice as many are held."""

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity, self._draws = capacity, Draws(seed, "sample")
        self._kept: list[Any] = []
        self._keys, self._rows = np.empty(0), np.empty(0, np.int64)

    def add(self, piece: Piece, first: int, usable: npt.NDArray[np.bool_]) -> None:
        keys = self._draws.uniform(piece.num_rows)
        full = len(self._keys) >= self._capacity
        chosen = np.flatnonzero(usable & (keys < self._keys.max()) if full else usable)
        self._kept.append(arrow().Table.from_batches([piece]).take(chosen))
        self._keys = np.concatenate([self._keys, keys[chosen]])
        self._rows = np.concatenate([self._rows, first + chosen])
        if len(self._keys) > 2 * self._capacity:
            self._trim()

    def _trim(self) -> None:
        if len(self._keys) > self._capacity:
            best = np.sort(np.argpartition(self._keys, self._capacity)[: self._capacity])
            self._kept = [self._joined().take(best)]
            self._keys, self._rows = self._keys[best], self._rows[best]

    def _joined(self) -> Any:
        return arrow().concat_tables(self._kept, promote_options="permissive").combine_chunks()

    def finish(self) -> tuple[Any, npt.NDArray[np.int64]]:
        self._trim()
        return self._joined(), self._rows.astype(np.int64)
