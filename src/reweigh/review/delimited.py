"""A delimited text file, record by record: one cell can be changed while every other byte stays.

Bytes that are not text in the file's encoding are carried along and written back as they were.
"""

import csv
import gzip
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from ..errors import DataError

QUOTE = '"'


@contextmanager
def as_text(
    stream: IO[bytes] | gzip.GzipFile, encoding: str, *, newline: str = ""
) -> Iterator[TextIO]:
    """`stream` as text, line ends as they are, and back again without a loss.

    newline    what ends a line: "" for any usual line end
    """
    text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline=newline)
    try:
        yield text
    finally:
        text.flush()
        text.detach()


@contextmanager
def reading(path: Path, encoding: str, *, newline: str = "") -> Iterator[TextIO]:
    """The file's text; unpacked if it is a .gz."""
    with (
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw,
        as_text(raw, encoding, newline=newline) as stream,
    ):
        yield stream


def records(stream: TextIO, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Every record as it is written, and its cells; blank lines have none."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the standard limit is 128 kB a cell
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in stream:
            taken.append(line)
            yield line

    try:
        for cells in csv.reader(lines(), delimiter=delimiter, quotechar=QUOTE):
            yield "".join(taken), cells
            taken.clear()
    except csv.Error as error:
        raise DataError(f"the data cannot be read as delimited text: {error}") from None


def column_of(cells: Sequence[str], name: str) -> int:
    """Where the column `name` is in the header's cells."""
    for wanted, names in ((name, list(cells)), (_name(name), [_name(cell) for cell in cells])):
        if wanted in names:
            return names.index(wanted)
    raise DataError(
        f"the data have no column {name!r}, only {', '.join(map(repr, cells[:20]))}; "
        "they are not what the run was trained on"
    )


def with_cells(record: str, changes: dict[int, str], *, delimiter: str, count: int) -> str:
    r"""`record` with some of its `count` cells replaced, quoted where they were or have to be.

    >>> with_cells('1,"a, b", x \r\n', {2: "y,z"}, delimiter=",", count=3)
    '1,"a, b","y,z"\r\n'
    """
    if not changes:
        return record
    spans = _spans(record, delimiter)
    if len(spans) != count:
        raise DataError(f"a record of {count} cells is quoted in a way that cannot be kept")
    parts, done = [], 0
    for column in sorted(changes):
        start, end = spans[column]
        quoted = record[start:end].startswith(QUOTE)
        parts += [record[done:start], _cell(changes[column], delimiter, quoted=quoted)]
        done = end
    return "".join([*parts, record[done:]])


def _spans(record: str, delimiter: str) -> list[tuple[int, int]]:
    other = f"[^{re.escape(delimiter)}\r\n]*"
    field = re.compile(f'(?:"(?:[^"]+|"")*"{other}|{other})')
    spans, start = [], 0
    while cell := field.match(record, start):
        spans.append(cell.span())
        if not record.startswith(delimiter, cell.end()):
            break
        start = cell.end() + 1
    return spans


def _cell(text: str, delimiter: str, *, quoted: bool) -> str:
    if quoted or any(mark in text for mark in (delimiter, QUOTE, "\r", "\n")):
        return QUOTE + text.replace(QUOTE, QUOTE * 2) + QUOTE
    return text


def _name(cell: str) -> str:
    return cell.removeprefix("\ufeff").strip()
