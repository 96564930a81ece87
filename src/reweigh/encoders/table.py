"""The rows of a table as float32 features, and as digests that tell whether two rows are the same.

    encoder, notices = fit_table(sample, rows, columns)  # sample: a pyarrow table of some train rows
    encoder.encode(piece)                                # [n, width]
    encoder.digests(piece)                               # uint64 [n]

A column that is empty, is constant, counts the rows or differs in nearly every row is left out, with
the reason. Else it has dates, numbers or words: see `columns.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..tables import Array, Piece, arrow, is_text, label_words, numbers, pandas, unreadable, words
from .columns import (
    DATE_FORMATS,
    CategoryColumn,
    Column,
    DateColumn,
    Features,
    NumberColumn,
    describe,
    restore,
    seconds_of,
)

MOSTLY = 0.95
"""Share of a column's cells that must be numbers (dates) for it to be a column of them."""


@dataclass(frozen=True)
class Unused:
    """A column left out, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class TableEncoder:
    """Fitted columns in their order; `unused` are known and left out."""

    columns: tuple[Column, ...]
    unused: tuple[Unused, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded row."""
        return (sum(column.width for column in self.columns),)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns a table must have."""
        return tuple(column.name for column in self.columns)

    def encode(self, piece: Piece) -> Features:
        """[n, width]."""
        parts = [column.encode(piece.column(column.name)) for column in self.columns]
        return np.concatenate(parts, axis=1)

    def digests(self, piece: Piece) -> npt.NDArray[np.uint64]:
        """One number per row, from all cells; also from those of unused columns that the piece has."""
        pd = pandas()
        total = np.zeros(piece.num_rows, dtype=np.uint64)
        there = set(piece.schema.names)
        names = [*self.needs, *(column.name for column in self.unused)]
        numeric = {c.name for c in self.columns if not isinstance(c, CategoryColumn)}
        forms = {c.name: c.form for c in self.columns if isinstance(c, DateColumn)}
        for place, name in enumerate(name for name in names if name in there):
            cells = piece.column(name)
            if name in numeric:
                # A form of "" reads numbers.
                values = np.nan_to_num(seconds_of(cells, forms.get(name, "")), nan=-1.5e300)
            else:
                values = label_words(cells).to_pandas().astype(object).to_numpy()
                values = np.where(pd.isna(values), "", values)
            # Odd factors keep columns apart: swapping two cells must change the sum.
            total += pd.util.hash_array(values) * np.uint64(2 * place + 1)
        return total

    def state(self) -> dict[str, Any]:
        """The encoder as JSON."""
        return {
            "columns": [describe(column) for column in self.columns],
            "unused": [asdict(column) for column in self.unused],
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The encoder that `state` describes."""
        return cls(
            tuple(restore(fields) for fields in state["columns"]),
            tuple(Unused(**fields) for fields in state["unused"]),
        )


def fit_table(
    sample: Any, rows: npt.NDArray[np.int64], names: Sequence[str]
) -> tuple[TableEncoder, list[str]]:
    """An encoder of the columns `names`, fitted on `sample`; `rows` are the indices of its rows."""
    columns: list[Column] = []
    unused: list[Unused] = []
    notices: list[str] = []
    for name in names:
        column, note = fit_column(name, sample.column(name).combine_chunks(), rows)
        if isinstance(column, Unused):
            unused.append(column)
            notices.append(f"column {name!r} {column.why}: left out")
        else:
            columns.append(column)
        notices += [note] if note else []
    if not columns:
        raise DataError(
            "no column is left to learn from: " + "; ".join(notices or ["there is only the target"])
        )
    return TableEncoder(tuple(columns), tuple(unused)), notices


def fit_column(
    name: str, array: Array, rows: npt.NDArray[np.int64]
) -> tuple[Column | Unused, str | None]:
    """Look at a sample of a column: how to encode it, or why not; and a notice, if any.

    `rows` are the positions of the sampled cells in the file.
    """
    if what := unreadable(array):
        return Unused(name, what), None
    cells = words(array)
    there = len(cells) - cells.null_count
    distinct = arrow("compute").count_distinct(cells, mode="only_valid").as_py()
    if there == 0:
        return Unused(name, "is empty"), None
    if distinct == 1 and there == len(cells):
        return Unused(name, "has the same value in every row"), None
    values, types = numbers(array), arrow("types")
    numeric = int(np.sum(~np.isnan(values)))
    note = None
    column: Column | Unused
    if types.is_timestamp(array.type) or types.is_date(array.type):
        column = DateColumn.fit(name, "", values)
    elif numeric >= MOSTLY * there and len(rows) > 50 and len(np.unique(values - rows)) == 1:
        column = Unused(name, "only counts the rows")
    elif numeric >= MOSTLY * there:
        if numeric < there:
            note = f"column {name!r}: {there - numeric:,} cells are no numbers and count as missing"
        column = NumberColumn.fit(name, values)
    elif (form := _date_form(array)) is not None:
        column = DateColumn.fit(name, form, seconds_of(array, form))
    elif there > 50 and distinct > 0.9 * there:
        column = Unused(name, "differs in nearly every row (a name or a text? see --text)")
    else:
        column = CategoryColumn.fit(name, cells)
    return column, note


def _date_form(array: Array) -> str | None:
    if not is_text(array):
        return None
    head = words(array).drop_null().slice(0, 5000)
    # Reading dates is slow, and most columns of words do not even look like them.
    alike = arrow("compute").match_substring_regex(head, r"^\d{1,4}[-/.]?\d")
    if arrow("compute").sum(alike).as_py() < MOSTLY * len(head):
        return None
    parsed = {form: int(np.sum(~np.isnan(seconds_of(head, form)))) for form in DATE_FORMATS}
    best = max(DATE_FORMATS, key=lambda form: parsed[form])
    return best if parsed[best] >= MOSTLY * len(head) else None
