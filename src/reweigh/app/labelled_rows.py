"""Rows and their labels, and the lists of rows that `reweigh review` writes: confirmed, dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import DataError, unknown
from ..tables import Array, label_words, numbers, open_table

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of one source and their labels: codes (classes) or numbers (regression)."""

    rows: Rows
    labels: Values

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: npt.NDArray[np.bool_]) -> LabelledRows:
        """Those for which `keep` is true."""
        return LabelledRows(self.rows[keep], self.labels[keep])


def read_confirmed(paths: Iterable[Path], classes: tuple[str, ...], size: int) -> LabelledRows:
    """`index,label`: rows of the data that somebody looked at; a row has one label."""
    codes = {name: float(k) for k, name in enumerate(classes)}
    labels: dict[int, float] = {}
    for path in paths:
        for piece in open_table(path).pieces(["index", "label"]):
            given = piece.column("label")
            values = _coded(given, codes, path) if classes else numbers(given)
            if np.isnan(values).any():
                raise DataError(
                    f"{path}: a row has no label; expected index,label of training rows"
                )
            rows = _indices(numbers(piece.column("index")), size, path)
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                if labels.setdefault(row, value) != value:
                    first, second = (
                        classes[int(v)] if classes else f"{v:g}" for v in (labels[row], value)
                    )
                    raise DataError(
                        f"{path}: row {row} is confirmed twice, as {first!r} and as {second!r}; "
                        "expected one label: remove the wrong line"
                    )
    return LabelledRows(np.array(list(labels), dtype=np.int64), np.array(list(labels.values())))


def read_dropped(paths: Iterable[Path], size: int) -> Rows:
    """`index`: rows of the data that somebody threw out."""
    rows: list[Rows] = [np.empty(0, np.int64)]
    for path in paths:
        for piece in open_table(path).pieces(["index"]):
            rows.append(_indices(numbers(piece.column("index")), size, path))
    return np.unique(np.concatenate(rows))


def _coded(column: Array, codes: dict[str, float], path: Path) -> Values:
    """An apostrophe that keeps a spreadsheet from running a label is no part of it."""
    names = [
        name[1:] if name is not None and name not in codes and name.startswith("'") else name
        for name in label_words(column, missing=("",)).to_pylist()
    ]
    for name in names:
        if name not in codes:
            raise DataError(f"{path}: {unknown('class', name, tuple(codes))}")
    return np.array([codes[name] for name in names])


def _indices(rows: Values, size: int, path: Path) -> Rows:
    if not ((rows >= 0) & (rows < size) & (rows % 1 == 0)).all():
        raise DataError(
            f"{path}: an index is outside 0 ... {size - 1}; expected rows of the training data"
        )
    return rows.astype(np.int64)
