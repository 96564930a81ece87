"""Rows and their labels; and the list of rows somebody confirmed, as `reweigh review` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..data.cells import labels, numbers
from ..data.tables import open_table
from ..errors import DataError, unknown

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of one source and their labels: codes (classes) or numbers (regression)."""

    rows: Rows
    labels: Values

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: npt.NDArray[np.bool_]) -> Labelled:
        """Those for which `keep` is true."""
        return Labelled(self.rows[keep], self.labels[keep])


def read_confirmed(path: Path, classes: tuple[str, ...], size: int) -> Labelled:
    """`index,label`: rows of the data that somebody looked at, as `reweigh review` exports them."""
    table = open_table(path)
    table.require("index", "label")
    places: list[npt.NDArray[np.float64]] = [np.empty(0)]
    given: list[npt.NDArray[np.float64]] = [np.empty(0)]
    code = {name: float(k) for k, name in enumerate(classes)}
    for piece in table.pieces(["index", "label"]):
        places.append(numbers(piece.column("index")))
        if not classes:
            given.append(numbers(piece.column("label")))
            continue
        # An apostrophe that only kept a spreadsheet from running the label is no part of it.
        names = [
            name[1:] if name is not None and name not in code and name.startswith("'") else name
            for name in labels(piece.column("label")).to_pylist()
        ]
        for name in names:
            if name not in code:
                raise DataError(f"{path}: {unknown('class', name, classes)}")
        given.append(np.array([code[name] for name in names]))
    rows, values = np.concatenate(places), np.concatenate(given)
    sound = (rows >= 0) & (rows < size) & (rows % 1 == 0)
    if not sound.all() or np.isnan(values).any():
        raise DataError(
            f"{path}: a row has no label, or an index outside 0 ... {size - 1}; "
            "expected rows of the training data"
        )
    # A row confirmed twice counts as it was confirmed last.
    order = dict(zip(rows.astype(np.int64).tolist(), values.tolist(), strict=True))
    return Labelled(np.array(list(order), dtype=np.int64), np.array(list(order.values())))
