"""Tables on disk, read in pieces: CSV (any delimiter), Parquet, and what has a file of its own here
(JSON Lines, Excel, folders of Hugging Face's `save_to_disk`, shards).

    table = open_table("rows.csv")
    for piece in table.pieces(): ...      # pyarrow record batches, a few MB each

Cells of a CSV come as strings: a type guessed from the first rows can be wrong in the millionth.
Memory is bounded by the size of a piece, never by the size of the file. The position of a row in the
file, from 0, is its index everywhere in this library.
"""

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from ..errors import DataError, unknown
from ..text import first_line
from . import excel, json_lines
from .arrow_folder import is_arrow_folder, open_arrow_folder
from .cells import arrow
from .decimals import COMMA, UNCLEAR, decimal_style, with_points
from .endings import CSV, EXCEL, JSON_LINES, PARQUET
from .shard_files import is_shards, shard_files
from .shards import ShardedRows, joined

Piece: TypeAlias = Any
"""A pyarrow record batch."""

ENDINGS = (*CSV, *PARQUET, *JSON_LINES, *EXCEL)
PIECE_ROWS = 65_536
PIECE_BYTES = 8 * 2**20
_HEAD = 2**16
_DELIMITERS = ",;\t|"
_MAGIC = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; name it .zip or .xlsx",
    b"PAR1": "a Parquet file; name it .parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as .xlsx, or the sheet as CSV",
    b"\x1f\x8b": "a gzip file; name it .csv.gz",
}


class TableRows(Protocol):
    """The rows of a table in another form than CSV and Parquet."""

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of the file."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read."""

    def pieces(self, columns: list[str]) -> Iterator[Piece]:
        """The rows in order, with these columns, one piece at a time."""


@dataclass(frozen=True)
class Table:
    """A table that can be read again and again; `columns` in the order of the file.

    delimiter   of a CSV; None for all else
    rows        who reads it, if it is neither CSV nor Parquet
    commas      columns of a text file whose decimal commas are read as points
    unclear     columns in which a comma may be decimal or part thousands; taken as words
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str | None = None
    encoding: str = "utf-8"
    rows: TableRows | None = None
    commas: frozenset[str] = frozenset()
    unclear: frozenset[str] = frozenset()

    def with_commas(self, columns: Collection[str]) -> "Table":
        """The same; commas that its own cells leave unclear are decimal in `columns`."""
        known = self.unclear & frozenset(columns)
        rows = self.rows.with_commas(columns) if isinstance(self.rows, ShardedRows) else self.rows
        return replace(self, commas=self.commas | known, unclear=self.unclear - known, rows=rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, for people to check."""
        said = []
        if len(self.read_from) > 1 and isinstance(self.rows, ShardedRows):
            first, last = self.read_from[0].name, self.read_from[-1].name
            said.append(f"{len(self.read_from):,} shards, {first} to {last}, read as one table")
        if self.commas:
            said.append(f"decimal commas in {_listed(self.commas)}: read as numbers")
        if self.unclear:
            said.append(
                f"commas in {_listed(self.unclear)} may be decimal or part thousands: taken as words"
            )
        if isinstance(self.rows, excel.ExcelRows) and self.rows.others:
            others = ", ".join(map(repr, self.rows.others[:3]))
            said.append(f"only the sheet {self.rows.sheet!r} is read, not {others}")
        return tuple(said)

    @property
    def shards(self) -> dict[str, int]:
        """The rows of each file, by its name, where the table is in several."""
        return self.rows.counts() if isinstance(self.rows, ShardedRows) else {}

    @property
    def read_from(self) -> tuple[Path, ...]:
        """All files that are read."""
        return (self.path,) if self.rows is None else self.rows.files

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[Piece]:
        """The rows in order, with some of the columns (None: all), one piece at a time."""
        wanted = list(self.columns if columns is None else columns)
        self.require(*wanted)
        pa = arrow()
        try:
            if self.rows is not None:
                yield from self.rows.pieces(wanted)
            else:
                read = _read_parquet if self.delimiter is None else _read_csv
                yield from read(self, wanted)
        except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
            if "UTF8" in str(error) or "codec" in str(error):
                invalid = UnicodeError("invalid bytes")
                raise _undecodable(self.path, self.encoding, invalid) from error
            why = first_line(error)[:160]
            raise DataError(f"{self.path} cannot be read: {why}; mend that row") from error
        except UnicodeError as error:
            raise _undecodable(self.path, self.encoding, error) from error

    def require(self, *names: str) -> None:
        """An error with the nearest name for a column that is not there."""
        there = set(self.columns)
        for name in names:
            if name not in there:
                error = unknown("column", name, self.columns)
                raise DataError(f"{self.path}: {error}")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(map(repr, sorted(names)[:8])) + (", ..." if len(names) > 8 else "")


def is_table(path: Path) -> bool:
    """Whether this is a table: by its name, as a folder of Arrow files, or as shards."""
    return path.name.lower().endswith(ENDINGS) or is_arrow_folder(path) or is_shards(path)


def open_table(path: str | Path, *, encoding: str = "utf-8") -> Table:
    """Look at the head of a table: its columns, and whether it is what its name says."""
    path = Path(path)
    if is_arrow_folder(path):
        return _with_rows(path, encoding, open_arrow_folder)
    if is_shards(path):
        return _joined(path, [open_table(file, encoding=encoding) for file in shard_files(path)])
    if not path.exists():
        raise DataError(
            f"there is no {path}; expected a .csv or .parquet file, a folder, or a pattern of files"
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device, which can be read once only"
        raise DataError(f"{path} is {what}; expected a .csv or .parquet file: save the rows in one")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = str(path).encode(errors="backslashreplace").decode()
        raise DataError(f"the name {shown} is not UTF-8; rename the file") from None
    name = path.name.lower()
    if name.endswith(PARQUET):
        return Table(path, _parquet_columns(path))
    if name.endswith(JSON_LINES):
        return _with_rows(path, encoding, json_lines.open_json_lines)
    if name.endswith(EXCEL):
        return _with_rows(path, encoding, excel.open_excel)
    if not name.endswith(CSV):
        hint = " (JSON: one object per line, in a .jsonl)" if name.endswith(".json") else ""
        known = ", ".join(ENDINGS)
        raise DataError(f"{path} has an unknown ending; expected one of {known}{hint}")
    header, delimiter = _csv_header(path, encoding)
    return _with_commas(Table(path, _checked_names(path, header), delimiter, encoding))


def _with_commas(table: Table) -> Table:
    """Look for decimal commas in the first piece, unless commas part the cells."""
    first = None if table.delimiter == "," else next(table.pieces(), None)
    if first is None:
        return table
    styles = {name: decimal_style(first.column(name)) for name in table.columns}
    commas, unclear = (
        frozenset(name for name, style in styles.items() if style == which)
        for which in (COMMA, UNCLEAR)
    )
    return replace(table, commas=commas, unclear=unclear)


def _with_rows(path: Path, encoding: str, opened: Callable[..., TableRows]) -> Table:
    try:
        rows = opened(path, encoding=encoding)
    except UnicodeError as error:
        raise _undecodable(path, encoding, error) from error
    return Table(path, _checked_names(path, rows.columns), None, encoding, rows)


def _joined(path: Path, tables: Sequence[Table]) -> Table:
    rows, first = joined(tables), tables[0]
    commas = frozenset[str]().union(*(table.commas for table in tables))
    unclear = frozenset[str]().union(*(table.unclear for table in tables)) - commas
    return Table(path, rows.columns, first.delimiter, first.encoding, rows, commas, unclear)


def _parquet_columns(path: Path) -> tuple[str, ...]:
    pa, pq = arrow(), arrow("parquet")
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{path} is no Parquet file, or is truncated ({first_line(error)[:160]}); write it again"
        ) from error
    return _checked_names(path, schema.names)


def _csv_header(path: Path, encoding: str) -> tuple[list[str], str]:
    unpacked = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with unpacked(path, "rb") as stream:
            head = stream.read(_HEAD)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is no gzip file, or is truncated; write it again") from error
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {what}")
    try:
        text = head[: head.rfind(b"\n") + 1 or None].decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise DataError(f"unknown encoding {encoding!r}; for example utf-8, latin-1") from None
    except UnicodeError as error:
        if b"\0" not in head:
            raise _undecodable(path, encoding, error) from error
        text = "\0"
    if "\0" in text:
        raise DataError(f"{path} is a binary file, not CSV; expected lines of text")
    if "\r" in text and "\n" not in text:
        raise DataError(
            f"the lines of {path} end with a carriage return alone, as on very old computers; "
            "expected line feeds: save it again as CSV (UTF-8)"
        )
    if not text.strip():
        raise DataError(f"{path} is empty; expected a header line and rows")
    delimiter = delimiter_of(text)
    return _fields(text, delimiter), delimiter


def delimiter_of(text: str) -> str:
    """The delimiter that cuts the first record of a CSV, its header, into most cells.

    >>> delimiter_of("a;b,c;label")
    ';'
    """
    return max(_DELIMITERS, key=lambda delimiter: len(_fields(text, delimiter)))


def _fields(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def _checked_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for name in names]
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise DataError(
            f"{path} has two columns called {twice[0]!r}; give every column a name of its own"
        )
    return tuple(names)


def _read_parquet(table: Table, columns: list[str]) -> Iterator[Piece]:
    # Neither mapped nor read ahead: both keep in memory the rows that were read before.
    with arrow("parquet").ParquetFile(table.path, memory_map=False, pre_buffer=False) as file:
        by_name = dict(zip(table.columns, file.schema_arrow.names, strict=True))
        for piece in file.iter_batches(PIECE_ROWS, columns=[by_name[c] for c in columns]):
            yield arrow().RecordBatch.from_arrays(
                [piece.column(by_name[c]) for c in columns], names=columns
            )


def _read_csv(table: Table, columns: list[str]) -> Iterator[Piece]:
    pa, pc = arrow(), arrow("csv")
    with pc.open_csv(
        table.path,
        read_options=pc.ReadOptions(
            block_size=PIECE_BYTES, column_names=list(table.columns), skip_rows_after_names=1,
            encoding=table.encoding,
        ),
        parse_options=pc.ParseOptions(
            delimiter=table.delimiter, newlines_in_values=True, ignore_empty_lines=True
        ),
        convert_options=pc.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=columns,
            null_values=[""],  # words for nothing are told apart later: "NA" may be a class
            strings_can_be_null=True,
        ),
    ) as reader:  # fmt: skip
        for piece in reader:
            yield _pointed(piece, table.commas) if table.commas else piece


def _pointed(piece: Piece, commas: frozenset[str]) -> Piece:
    arrays = [
        with_points(piece.column(name)) if name in commas else piece.column(name)
        for name in piece.schema.names
    ]
    return arrow().RecordBatch.from_arrays(arrays, names=piece.schema.names)


def _undecodable(path: Path, encoding: str, error: UnicodeError) -> DataError:
    where = f"byte {error.start}, " if isinstance(error, UnicodeDecodeError) else ""
    return DataError(
        f"{path} is not {encoding} text ({where}{getattr(error, 'reason', error)}); "
        "give --encoding, for example --encoding latin-1, or save it as UTF-8"
    )
