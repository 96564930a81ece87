r"""JSON Lines: one JSON object per line, read as a table of words.

    {"length": 3.10, "town": "Ulm", "label": "cat"}
    {"length": 4, "label": "dog", "tags": ["a", "b"]}

The columns are all keys, in the order in which they first occur; a key that a line lacks is a missing
cell, as is null. Cells are strings, as those of a CSV are: numbers as they are written, true and false.
A list or a record becomes its JSON text, and its column cannot be learnt from (`nested`).

The file is read once to find the keys and again for the rows, each time in pieces. Blank lines are
passed over. `spans` finds the values of a line, so that one of them can be changed and every other
byte stays.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, TextIO

from ..errors import DataError
from .cells import arrow, nested_column

MOST_COLUMNS = 20_000
LONGEST_LINE = 64 * 2**20
PIECE_ROWS = 65_536
PIECE_CHARACTERS = 8 * 2**20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


@dataclass(frozen=True)
class JsonLines:
    """The rows of one file; `nested` are the columns that hold lists or records somewhere."""

    path: Path
    encoding: str
    columns: tuple[str, ...]
    nested: frozenset[str]

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read."""
        return (self.path,)

    def pieces(self, columns: list[str]) -> Iterator[Any]:
        """The rows in order, as pyarrow record batches of strings."""
        cells: dict[str, list[str | None]] = {name: [] for name in columns}
        held = rows = 0
        for line, record in records(self.path, self.encoding):
            for name, column in cells.items():
                column.append(_cell(record.get(name), line, name))
            held, rows = held + len(line), rows + 1
            if rows >= PIECE_ROWS or held >= PIECE_CHARACTERS:
                yield self._piece(cells)
                cells, held, rows = {name: [] for name in columns}, 0, 0
        if rows:
            yield self._piece(cells)

    def _piece(self, cells: dict[str, list[str | None]]) -> Any:
        pa = arrow()
        arrays = []
        for name, column in cells.items():
            array = pa.array(column, pa.string())
            arrays.append(nested_column(array) if name in self.nested else array)
        return pa.RecordBatch.from_arrays(arrays, names=list(cells))


def open_json_lines(path: Path, *, encoding: str) -> JsonLines:
    """Read the file once, for its columns."""
    columns: dict[str, bool] = {}
    for _, record in records(path, encoding):
        for name, value in record.items():
            columns[name] = columns.get(name, False) or isinstance(value, (list, dict))
        if len(columns) > MOST_COLUMNS:
            raise DataError(
                f"{path} has more than {MOST_COLUMNS:,} different keys; expected the same keys on "
                "every line, one for each column"
            )
    if not columns:
        raise DataError(f'{path} has no rows; expected a line as {{"x": 1, "label": "a"}} per row')
    return JsonLines(
        path, encoding, tuple(columns), frozenset(name for name in columns if columns[name])
    )


def records(path: Path, encoding: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every line that is not blank, and its object; scalars as they are written."""
    with _opened(path, encoding) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            if len(line) >= LONGEST_LINE:
                raise DataError(f"line {number:,} of {path} is longer than 64 million characters")
            if not is_blank(line):
                yield line, parsed(line, f"line {number:,} of {path}")


def is_blank(line: str) -> bool:
    """Whether a line has nothing on it."""
    return not line.strip("\ufeff \t\r\n")


def parsed(line: str, where: str) -> dict[str, Any]:
    """The object on a line; keys and words that are no Unicode text are made so."""
    try:
        record = _DECODER.decode(line.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        hint = ""
        if line.lstrip("\ufeff \t").startswith("["):
            hint = "; a list of objects has to be written with one object per line"
        why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise DataError(
            f"{where} is not JSON ({why}); expected one object per line{hint}"
        ) from None
    if not isinstance(record, dict):
        what = "a list" if isinstance(record, list) else "a single value"
        raise DataError(
            f'{where} is {what}; expected an object per line, as {{"x": 1, "label": "a"}}'
        )
    return {_text(name).strip(): value for name, value in record.items()}


def spans(line: str) -> dict[str, tuple[int, int]]:
    r"""Where the value of each key is on a line that `parsed` has read; of equal keys the last.

    >>> spans('{"a": [1, 2], "b" : "x"}\n')
    {'a': (6, 12), 'b': (20, 23)}
    """
    found, place = {}, line.index("{") + 1
    while line[place := _after_space(line, place)] != "}":
        if line[place] == ",":
            place = _after_space(line, place + 1)
        name, place = scanstring(line, place + 1)
        start = _after_space(line, _after_space(line, place) + 1)
        _, place = _DECODER.raw_decode(line, start)
        found[_text(name).strip()] = (start, place)
    return found


def _after_space(line: str, place: int) -> int:
    match = _SPACE.match(line, place)
    assert match is not None, "it matches nothing, too"
    return match.end()


def _cell(value: Any, line: str, name: str) -> str | None:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    start, end = spans(line)[name]
    return _text(line[start:end])


def _text(value: str) -> str:
    """Half of a pair of surrogates is no character, and no table could keep it."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[TextIO]:
    packed = path.name.lower().endswith(".gz")
    try:
        with (
            gzip.open(path) if packed else path.open("rb") as raw,
            io.TextIOWrapper(raw, encoding=encoding, newline="\n") as stream,
        ):
            yield stream
    except LookupError:
        raise DataError(f"unknown encoding {encoding!r}; for example utf-8, latin-1") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is no gzip file, or is truncated; write it again") from error
