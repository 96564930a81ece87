"""The rows of a run's data, by index and in any order: the text, the path of the image, or the cells.

Texts and cells are read from the user's file, one pass over it for each call. Before anything is handed
out, the number of rows and the given labels are compared with those of the run: a ranking beside the
rows of another file would be worse than none.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..runs import RunSource
from ..tables import (
    Piece,
    Table,
    arrow,
    is_image_archive,
    label_words,
    numbers,
    open_image_cells,
    open_images,
    open_table,
)

TEXT, PATH = "text", "path"
_CHANGED = "the data have changed since: train again, or bring the old file back"


class RowContent:
    """The content of the rows of `source`.

    names    the columns that `at` gives: ("path",), ("text",), or the columns of a table
    files    whether others will open the images, which then may not lie in an archive
    """

    def __init__(self, source: RunSource, *, files: bool = False) -> None:
        self.source = source
        if source.kind == "images":
            archive = is_image_archive(source.data)
            if files and (archive or source.image_column is not None):
                raise DataError(
                    f"the images are inside {source.data}, where other programs cannot open them; "
                    f"{'unpack it' if archive else 'write them to files'}, and train on the folder"
                )
            self.names: tuple[str, ...] = (PATH,)
        elif source.kind == "text":
            self.names = (TEXT,)
        else:
            self.names = tuple(name for name in self._table.columns if name != source.target)

    def at(self, index: npt.NDArray[np.int64], given: list[str]) -> Piece:
        """A pyarrow table of the rows at `index`, in that order, whose labels should be `given`."""
        pa = arrow()
        if self.source.kind == "images":
            files = self._folder.files
            self._check_rows(len(files))
            self._check_labels(index, self._image_labels(index), given)
            return pa.table({PATH: pa.array([files[i] for i in index.tolist()], pa.string())})
        source = self.source
        columns = [source.text_column or ""] if source.kind == "text" else list(self.names)
        rows = self._rows(index, [*dict.fromkeys([*columns, source.target])])
        labels = rows.column(source.target).combine_chunks()
        if source.task == "regression":
            self._check_numbers(index, numbers(labels), given)
        else:
            self._check_labels(index, label_words(labels).to_pylist(), given)
        return rows.select(columns).rename_columns(list(self.names))

    @cached_property
    def _table(self) -> Table:
        table = open_table(self.source.data, encoding=self.source.encoding)
        return table.with_commas(self.source.commas)

    @cached_property
    def _folder(self) -> Any:
        if self.source.image_column is not None:
            return open_image_cells(self.source.data, self.source.image_column)
        return open_images(self.source.data)

    def _image_labels(self, index: npt.NDArray[np.int64]) -> list[str | None]:
        if self.source.is_listing:
            return [self._folder.names[i] for i in index.tolist()]
        labels = self._rows(index, [self.source.target]).column(0).combine_chunks()
        return list(label_words(labels).to_pylist())

    def _rows(self, index: npt.NDArray[np.int64], columns: list[str]) -> Piece:
        pa = arrow()
        order, first, found = np.argsort(index, kind="stable"), 0, []
        wanted = index[order]
        for piece in self._table.pieces(columns):
            low, high = np.searchsorted(wanted, [first, first + piece.num_rows])
            found.append(piece.take(pa.array(wanted[low:high] - first)))
            first += piece.num_rows
        self._check_rows(first)
        rows = pa.Table.from_batches(found)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return rows.take(pa.array(back))

    def _check_rows(self, rows: int) -> None:
        if rows != self.source.rows:
            raise DataError(
                f"{self.source.data} has {rows:,} rows, but had {self.source.rows:,} when the run was "
                f"trained; {_CHANGED}"
            )

    def _check_labels(
        self, index: npt.NDArray[np.int64], labels: list[str | None], given: list[str]
    ) -> None:
        for row, label, expected in zip(index.tolist(), labels, given, strict=True):
            if label != expected:
                self._refuse(row, label, expected)

    def _check_numbers(
        self, index: npt.NDArray[np.int64], values: npt.NDArray[np.float64], given: list[str]
    ) -> None:
        for row, value, expected in zip(index.tolist(), values.tolist(), given, strict=True):
            if not math.isclose(value, float(expected), rel_tol=1e-4, abs_tol=1e-6):
                self._refuse(row, str(value), expected)

    def _refuse(self, row: int, label: str | None, expected: str) -> None:
        raise DataError(
            f"row {row} of {self.source.data} has the label {label!r}, but had {expected!r} when the "
            f"run was trained; {_CHANGED}"
        )
