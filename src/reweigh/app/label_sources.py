"""Where each label comes from: the cells of the column --source (an annotator, a rule, a batch, a file).

`rates` and `weights` are those of sentinels/sources.py; a row whose source is not known counts 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals
from ..sentinels import SourceRate, source_rates, source_weights
from ..tables import ImageFolder, words
from .preparation import Prepared


@dataclass(frozen=True, eq=False)
class LabelSources:
    """Of each train row [n] the place of its source in `names`; -1 where the cell is empty."""

    codes: Places
    names: tuple[str, ...]

    def of(self, rows: Places) -> list[str | None]:
        """The sources of the train rows at `rows`."""
        return [self.names[code] if code >= 0 else None for code in self.codes[rows].tolist()]

    def rates(self, p_wrong: Reals) -> tuple[Places, SourceRate] | None:
        """The sources with a row whose p_wrong [n] is known, by their places, and how often each is wrong."""
        known = ~np.isnan(p_wrong) & (self.codes >= 0)
        present, codes = np.unique(self.codes[known], return_inverse=True)
        if not len(present):
            return None
        return present, source_rates(p_wrong[known], codes, len(present))

    def row_weights(self, p_wrong: Reals, classes: int) -> Reals:
        """[n] what each row counts."""
        counts = np.ones(len(self.codes))
        if (found := self.rates(p_wrong)) is not None:
            present, rates = found
            by_code = np.ones(len(self.names) + 1)  # the last: no source
            by_code[present] = source_weights(rates, classes)
            counts = by_code[self.codes]
        return counts


def read_sources(prepared: Prepared, column: str | None) -> LabelSources | None:
    """Read once more from the data; None without a column."""
    if column is None:
        return None
    files = prepared.inspected.sources["data"].files
    assert not isinstance(files, ImageFolder), "refused for images"
    known: dict[str, int] = {}
    codes = [
        -1 if cell is None or not cell.strip() else known.setdefault(cell.strip(), len(known))
        for piece in files.pieces([column])
        for cell in words(piece.column(column)).to_pylist()
    ]
    return LabelSources(np.array(codes, dtype=np.int64)[prepared.train_rows], tuple(known))
