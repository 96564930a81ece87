"""Excel workbooks (.xlsx), read as a table of words: the first sheet that has cells.

The first row with cells is the header; rows without any are passed over, as blank lines of a CSV are.
A formula counts as the value it had when the workbook was saved. Cells are strings, as those of a CSV:
whole numbers without a point, dates as 2024-05-31; an error as #DIV/0! is a missing cell.

A workbook is a zip archive. One that unpacks to more than `LARGEST` bytes is refused before it is read.
"""

from __future__ import annotations

import datetime
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..optional import optional
from ..text import first_line
from .cells import arrow

LARGEST = 2 * 2**30
PIECE_ROWS = 16_384
MOST_COLUMNS = 16_384
_ERRORS = {"#N/A", "#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#SPILL!", "#CALC!"}
_MIDNIGHT = datetime.time()


@dataclass(frozen=True)
class ExcelRows:
    """The rows of one sheet; `others` are the names of further sheets that are not read."""

    path: Path
    sheet: str
    columns: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read."""
        return (self.path,)

    def pieces(self, columns: list[str]) -> Iterator[Any]:
        """The rows in order, as pyarrow record batches of strings."""
        places = [self.columns.index(name) for name in columns]
        rows: list[tuple[Any, ...]] = []
        for row in self.values():
            rows.append(row)
            if len(rows) == PIECE_ROWS:
                yield _piece(rows, places, columns)
                rows = []
        if rows:
            yield _piece(rows, places, columns)

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The cells of each row under the header, as Excel has them; as many as there are columns."""
        with opened(self.path) as book:
            rows = sheet_rows(book[self.sheet])
            next(rows)
            for row in rows:
                short = len(self.columns) - len(row)
                yield (*row, *(None,) * short) if short > 0 else row[: len(self.columns)]


def open_excel(path: Path, *, encoding: str) -> ExcelRows:
    """Look at the header of the first sheet that has cells."""
    with opened(path) as book:
        for place, sheet in enumerate(book.worksheets):
            header = next(sheet_rows(sheet), None)
            if header is not None:
                others = tuple(other.title for other in book.worksheets[place + 1 :])
                return ExcelRows(path, sheet.title, _names(header), others)
    raise DataError(f"{path} has no cells; expected a header row and rows in its first sheet")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The workbook, read as it is asked for; its errors in words."""
    openpyxl = optional(
        "openpyxl", package="openpyxl", extra="excel", needed_for="reading Excel files"
    )
    _check_size(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that no cell depends on
            book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
            try:
                yield book
            finally:
                book.close()
    # A damaged workbook leads openpyxl to errors of every kind.
    except (DataError, GeneratorExit, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"{path} is no Excel workbook, or is damaged ({first_line(error)[:160]}); save it again "
            "as .xlsx, or the sheet as CSV"
        ) from error


def sheet_rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a sheet that have a cell."""
    if hasattr(sheet, "reset_dimensions"):
        sheet.reset_dimensions()  # some programs note a size that is wrong
    for row in sheet.iter_rows(values_only=True):
        if any(cell is not None and cell != "" for cell in row):
            yield row


def _check_size(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise DataError(
            f"{path} is no Excel workbook, or is truncated; save it again as .xlsx (an old .xls or one "
            "with a password, too)"
        ) from None
    if size > LARGEST:
        raise DataError(
            f"{path} unpacks to {size / 2**30:,.1f} GB; expected 2 or less: save the sheet as CSV"
        )


def _names(header: tuple[Any, ...]) -> tuple[str, ...]:
    """A column without a name gets that of its place, if one with a name follows."""
    cells = [_cell(cell) or "" for cell in header[:MOST_COLUMNS]]
    while not cells[-1].strip():
        cells.pop()
    return tuple(cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1))


def _piece(rows: list[tuple[Any, ...]], places: list[int], columns: list[str]) -> Any:
    pa = arrow()
    arrays = [pa.array([_cell(row[place]) for row in rows], pa.string()) for place in places]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def _cell(value: Any) -> str | None:
    """A value of Excel as the text that a CSV would have."""
    if value is None or value == "" or value in _ERRORS:
        return None
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, datetime.datetime) and value.time() == _MIDNIGHT:
        value = value.date()
    return str(value)
