"""Images that are cells of a table: Parquet files and Hugging Face's folders, which are read where they lie.

    {"bytes": ..., "path": "cat/1.png"}     a record, as Hugging Face writes images (`path` may be missing)
    ...                                     or the bytes alone

Such an image is called `image[17] cat/1.png`: its column, its row, and its path if it has one. A cell without
bytes counts as an image that cannot be read. Memory: one row group of a Parquet file, for each file.
"""

from __future__ import annotations

import io
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import DataError
from ..text import first_line
from .arrow_folder import is_arrow_folder, open_arrow_folder
from .cells import arrow
from .endings import PARQUET
from .shard_files import is_shards, shard_files

BYTES, PATH = "bytes", "path"
LOOKED_AT = 20
"""Cells that tell whether a column holds images."""
GROUPS = 2
"""Row groups that stay in memory: readers in several threads meet at the border of two."""
_NAME = re.compile(r"(.+?)\[(\d+)\](?: .*)?", re.DOTALL)


@dataclass(frozen=True)
class ImageCell:
    """The image in a row of `table`; shown as `name`."""

    table: Path
    column: str
    row: int
    name: str

    def open(self) -> IO[bytes]:
        """Its bytes, in memory; an OSError if there are none."""
        content = _column(self.table, self.column).at(self.row)
        if content is None:
            raise OSError(f"{self} has no bytes")
        return io.BytesIO(content)

    def __str__(self) -> str:
        return f"{self.table}: {self.name}"


def holds_cells(path: Path) -> bool:
    """Whether a file or folder may have images in cells, by its name."""
    return _is_parquet(path) or is_arrow_folder(path) or bool(_parquet_shards(path))


def image_columns(path: Path) -> tuple[str, ...]:
    """The columns that hold images, as the first cells tell."""
    if not holds_cells(path):
        return ()
    if shards := _parquet_shards(path):
        return image_columns(shards[0])
    schema, _ = _opened(path)
    named = [name for name in schema.names if _is_image_type(schema.field(name).type)]
    return tuple(name for name in named if _are_images(path, name))


def image_cells(path: Path, column: str) -> list[ImageCell]:
    """Of all rows, in order; of shards one after the other."""
    cells: list[ImageCell] = []
    for file in _parquet_shards(path) or (path,):
        first = len(cells)
        cells += [
            ImageCell(file, column, row, f"{column}[{first + row}]" + (f" {said}" if said else ""))
            for row, said in enumerate(_paths(file, column))
        ]
    return cells


def cell_named(path: Path, name: str) -> ImageCell | None:
    """The image that `name` is in a table; None if it is no such name."""
    match = _NAME.fullmatch(name)
    if match is None or not holds_cells(path):
        return None
    row = int(match[2])
    for shard in _parquet_shards(path):
        if row < (count := _row_count(shard)):
            return ImageCell(shard, match[1], row, name)
        row -= count
    return None if is_shards(path) else ImageCell(path, match[1], row, name)


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(PARQUET) and path.is_file()


def _parquet_shards(path: Path) -> tuple[Path, ...]:
    """The files of a folder or pattern of Parquet shards; none of anything else."""
    files = shard_files(path) if is_shards(path) and not is_arrow_folder(path) else ()
    return files if files and _is_parquet(files[0]) else ()


def _row_count(path: Path) -> int:
    with arrow("parquet").ParquetFile(path) as file:
        return int(file.metadata.num_rows)


def _is_image_type(kind: Any) -> bool:
    types = arrow("types")
    if types.is_struct(kind):
        place = kind.get_field_index(BYTES)
        return place >= 0 and _is_image_type(kind.field(place).type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _are_images(path: Path, column: str) -> bool:
    from PIL import Image, UnidentifiedImageError

    found = known = 0
    for cell in _first_cells(path, column):
        try:
            with Image.open(io.BytesIO(cell)):
                known += 1
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
            pass
        found += 1
    return known > found / 2


def _first_cells(path: Path, column: str) -> Iterator[bytes]:
    """The first few that are there."""
    _, pieces = _opened(path)
    found = 0
    for piece in pieces(column, LOOKED_AT):
        for cell in _bytes(piece.column(0)):
            if (content := cell.as_py()) is not None:
                yield content
                found += 1
            if found >= LOOKED_AT:
                return


def _paths(path: Path, column: str) -> Iterator[str | None]:
    schema, pieces = _opened(path)
    if schema.get_field_index(column) < 0:
        raise DataError(f"{path} has no column {column!r}; expected one with images")
    kind = schema.field(column).type
    if not _is_image_type(kind):
        raise DataError(f"{path}: column {column!r} holds {kind}, expected images as bytes")
    has_path = arrow("types").is_struct(kind) and kind.get_field_index(PATH) >= 0
    # Of a record in Parquet, one part can be read without the others.
    leaf = BYTES if arrow("types").is_struct(kind) else ""
    part = f"{column}.{PATH if has_path else leaf}".rstrip(".")
    if path.is_dir():
        part = column
    for piece in pieces(part, 4096):
        cells = piece.column(0)
        if not has_path:
            yield from [None] * len(cells)
        else:
            yield from arrow("compute").struct_field(cells, PATH).to_pylist()


def _opened(path: Path) -> tuple[Any, Any]:
    """The schema, and a function that reads a column in pieces of so many rows."""
    pa = arrow()
    if path.is_dir():
        rows = open_arrow_folder(path, encoding="utf-8")

        def of_folder(column: str, size: int) -> Iterator[Any]:
            for batch in rows.batches():
                few = batch.select([column])
                yield from (few.slice(k, size) for k in range(0, few.num_rows, size))

        return rows.schema(), of_folder
    try:
        file = arrow("parquet").ParquetFile(path, memory_map=False, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        why = first_line(error)[:160]
        raise DataError(f"{path} is no Parquet file, or is truncated ({why})") from error

    def of_file(column: str, size: int) -> Iterator[Any]:
        with file:
            yield from file.iter_batches(size, columns=[column])

    return file.schema_arrow, of_file


def _bytes(cells: Any) -> Any:
    """Of records, their bytes."""
    if arrow("types").is_struct(cells.type):
        return arrow("compute").struct_field(cells, BYTES)
    return cells


class _ImageColumn:
    """Rows in any order; `ends` are those of the row groups, or of the record batches of a folder."""

    def __init__(self, path: Path, column: str) -> None:
        self._lock, self._groups = threading.Lock(), OrderedDict[int, Any]()
        self._read: Callable[[int], Any]
        if path.is_dir():
            batches = list(_mapped(path))
            counts = [batch.num_rows for batch in batches]
            self._read = lambda group: _bytes(batches[group].column(column))
        else:
            file = arrow("parquet").ParquetFile(path, pre_buffer=False)
            counts = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
            kind = file.schema_arrow.field(column).type
            part = f"{column}.{BYTES}" if arrow("types").is_struct(kind) else column
            self._read = lambda group: _bytes(file.read_row_group(group, columns=[part]).column(0))
        self._ends = np.cumsum(counts)

    def at(self, row: int) -> bytes | None:
        """The bytes of a row."""
        if not 0 <= row < (self._ends[-1] if len(self._ends) else 0):
            raise OSError(f"there is no row {row}")
        group = int(np.searchsorted(self._ends, row, side="right"))
        start = int(self._ends[group - 1]) if group else 0
        with self._lock:
            if group not in self._groups:
                while len(self._groups) >= GROUPS:
                    self._groups.popitem(last=False)
                self._groups[group] = self._read(group)
            cells = self._groups[group]
        content: bytes | None = cells[row - start].as_py()
        return content


def _mapped(path: Path) -> Iterator[Any]:
    """The record batches of a folder, as views of its files."""
    pa, ipc = arrow(), arrow("ipc")
    for file in open_arrow_folder(path, encoding="utf-8").files:
        source = pa.memory_map(str(file))
        try:
            yield from ipc.open_stream(source)
        except pa.ArrowInvalid:
            source.seek(0)
            reader = ipc.open_file(source)
            yield from (reader.get_batch(k) for k in range(reader.num_record_batches))


def _column(path: Path, column: str) -> _ImageColumn:
    status = path.stat()
    pa = arrow()
    try:
        return _kept(path.resolve(), status.st_size, status.st_mtime_ns, column)
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, DataError) as error:
        raise OSError(f"{path} cannot be read ({first_line(error)[:160]})") from error


@lru_cache(maxsize=4)
def _kept(path: Path, _size: int, _time: int, column: str) -> _ImageColumn:
    return _ImageColumn(path, column)
