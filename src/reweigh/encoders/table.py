"""The rows of a table as float32 features, and as digests that tell whether two rows are the same.

encoder, notices = fit_table(sample, rows, columns)      # sample: a pyarrow table of some train rows
encoder.encode(piece)                              # [n, width]
encoder.digests(piece)                             # uint64 [n]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..tables import Piece, label_words, pandas
from .column_fitting import Unused, fit_column
from .columns import (
    CategoryColumn,
    Column,
    DateColumn,
    Features,
    describe,
    restore,
    seconds_of,
)

Digests = npt.NDArray[np.uint64]


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

    def digests(self, piece: Piece) -> Digests:
        """One number per row, from all cells; also from those of unused columns that the piece has."""
        pd = pandas()
        total = np.zeros(piece.num_rows, dtype=np.uint64)
        names = [*self.needs, *(column.name for column in self.unused)]
        words = {c.name for c in self.columns if isinstance(c, CategoryColumn)}
        words |= {column.name for column in self.unused}
        forms = {c.name: c.form for c in self.columns if isinstance(c, DateColumn)}
        for place, name in enumerate(name for name in names if name in piece.schema.names):
            cells = piece.column(name)
            if name in words:
                values = label_words(cells).to_pandas().astype(object).to_numpy()
                values = np.where(pd.isna(values), "", values)
            else:
                # A form of "" reads numbers.
                values = np.nan_to_num(seconds_of(cells, forms.get(name, "")), nan=-1.5e300)
            hashed = pd.util.hash_array(values)
            # Odd factors keep columns apart: swapping two cells must change the sum.
            total += hashed * np.uint64(2 * place + 1)
        return total

    def state(self) -> dict[str, Any]:
        """The encoder as JSON."""
        return {
            "columns": [describe(column) for column in self.columns],
            "unused": [{"name": column.name, "why": column.why} for column in self.unused],
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
