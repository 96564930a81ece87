"""Parquet shards: fields are columns.

Numbers come as they are (a missing one is NaN), lists of numbers as [n, k], texts and binary cells
as objects. A range begins in the row group that holds its first row, and keeps one piece in memory.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ...tables import arrow, open_table
from ...text import first_line
from .row_arrays import Rows

PIECE = 4096


def describe(path: Path) -> tuple[int, dict[str, str]]:
    """The number of rows, and the type of each column."""
    open_table(path)  # says what is wrong with a file that is no Parquet
    with arrow("parquet").ParquetFile(path) as file:
        schema = file.schema_arrow
        kinds = {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
        return file.metadata.num_rows, kinds


def read(path: Path, first: int, last: int, fields: Sequence[str]) -> Iterator[Rows]:
    """Rows first ... last-1, some at a time."""
    pa, pq = arrow(), arrow("parquet")
    try:
        # Neither mapped nor read ahead: both keep in memory what has been passed already. No
        # threads: workers are processes, and a pool of threads does not survive a fork.
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
            ends = np.cumsum(sizes)
            groups = [k for k in range(len(sizes)) if ends[k] > first and ends[k] - sizes[k] < last]
            at = int(ends[groups[0]] - sizes[groups[0]])
            for piece in file.iter_batches(
                PIECE, row_groups=groups, columns=list(fields), use_threads=False
            ):
                low, high = max(first - at, 0), min(last - at, len(piece))
                at += len(piece)
                if low < high:
                    part = piece.slice(low, high - low)
                    yield {name: _values(part.column(name), path, name) for name in fields}
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read ({first_line(error)}); write it again") from error


def _values(column: Any, path: Path, name: str) -> npt.NDArray[Any]:
    pa, types = arrow(), arrow("types")
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_list(column.type) or types.is_fixed_size_list(column.type):
        flat, rows = column.flatten(), len(column)
        width = len(flat) // rows
        lengths = arrow("compute").list_value_length(column)
        if len(flat) != rows * width or lengths.null_count or set(lengths.to_pylist()) != {width}:
            raise DataError(
                f"{path}: the lists of column {name!r} have different lengths, or gaps; expected "
                "lists of equal length"
            )
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(rows, width)
    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.asarray(column.to_numpy(zero_copy_only=False))
