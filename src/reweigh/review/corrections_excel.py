"""A sheet of Excel with a review's decisions carried out, as a new workbook with that one sheet.

Cells keep their values and types: numbers, words, dates. Formulas become the values they had, and
formats and other sheets are left behind. A word that begins with `=` stays a word: it cannot run.
"""

from typing import IO, Any

from ..errors import DataError
from ..optional import optional
from ..runs import RunSource
from ..tables import ExcelRows, open_table
from .corrections import Corrected, Corrections, check_rows
from .delimited import column_of


def correct_excel(source: RunSource, corrections: Corrections, out: IO[bytes]) -> Corrected:
    """Write the corrected sheet to `out`."""
    openpyxl = optional(
        "openpyxl", package="openpyxl", extra="excel", needed_for="writing Excel files"
    )
    rows = open_table(source.data).rows
    assert isinstance(rows, ExcelRows), "chosen by the name of the data"
    column, index, met = column_of(rows.columns, source.target), -1, Corrected()
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet(rows.sheet)
    sheet.append([_word(openpyxl, sheet, name) for name in rows.columns])
    for index, values in enumerate(rows.values()):
        cells: list[Any] = list(values)
        if index in corrections.given:
            met.labels[index] = _label(cells[column])
            corrections.check(index, met.labels[index])
        if index in corrections.dropped:
            continue
        if index in corrections.labels:
            cells[column] = _relabelled(cells[column], corrections.labels[index])
        sheet.append([_word(openpyxl, sheet, c) if isinstance(c, str) else c for c in cells])
    check_rows(source, index + 1)
    book.save(out)
    return met


def _word(openpyxl: Any, sheet: Any, text: str) -> Any:
    """A cell that is a word, whatever it begins with."""
    try:
        cell = openpyxl.cell.WriteOnlyCell(sheet, value=text)
    except openpyxl.utils.exceptions.IllegalCharacterError:
        raise DataError(f"the cell {text[:40]!r} has characters that Excel cannot hold") from None
    cell.data_type = "s"
    return cell


def _label(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _relabelled(before: Any, label: str) -> Any:
    """A number where a number was, true or false where one of them was, else a word."""
    if isinstance(before, bool):
        return label == "True" if label in ("True", "False") else label
    if isinstance(before, (int, float)):
        try:
            return float(label) if "." in label or "e" in label.lower() else int(label)
        except ValueError:
            return label
    return label
