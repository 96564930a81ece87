"""Shards with a review's decisions carried out, as one file: text one after the other, Parquet in one schema."""

import io
from dataclasses import replace
from typing import IO, Any

from ..errors import DataError
from ..runs import RunSource
from ..tables import PARQUET, ShardedRows, open_table
from .corrections import Corrected, Corrections, correct_batches, correct_delimited
from .corrections_json import correct_json_lines


def correct_shards(source: RunSource, corrections: Corrections, out: IO[bytes]) -> Corrected:
    """Write the rows of all shards to `out`; text files with one header."""
    rows = open_table(source.data, encoding=source.encoding).rows
    names = [] if not isinstance(rows, ShardedRows) else [file.name for file in rows.files]
    if not isinstance(rows, ShardedRows) or names != list(source.shards):
        raise DataError(
            f"{source.data} has not the shards any more that the run was trained on; bring them back, or train again"
        )
    if rows.schema is not None:
        return correct_batches(
            source, corrections, out, rows.schema, rows.pieces(list(rows.columns))
        )
    return _joined(source, corrections, _Lines(out), rows)


def _joined(
    source: RunSource, corrections: Corrections, out: "_Lines", rows: ShardedRows
) -> Corrected:
    if "\n".encode(source.encoding) != b"\n":
        raise DataError(
            f"shards in {source.encoding} cannot be written as one file here; save them as UTF-8, and train again"
        )
    first, met = 0, Corrected()
    for number, file in enumerate(rows.files):
        out.end_line()
        here = replace(source, data=file, rows=source.shards[file.name])
        some = _of_shard(corrections, first, here.rows)
        stream: Any = out
        if rows.tables[number].delimiter is None:
            done = correct_json_lines(here, some, stream)
        else:
            done = correct_delimited(here, some, stream, header=not number)
        met.guarded += done.guarded
        met.labels |= {first + index: label for index, label in done.labels.items()}
        first += here.rows
    return met


def _of_shard(corrections: Corrections, first: int, count: int) -> Corrections:
    """Those of the rows `first` and the `count` - 1 after it, by their place in the shard."""

    def here(index: int) -> bool:
        return first <= index < first + count

    return replace(
        corrections,
        given={i - first: label for i, label in corrections.given.items() if here(i)},
        labels={i - first: label for i, label in corrections.labels.items() if here(i)},
        dropped=frozenset(i - first for i in corrections.dropped if here(i)),
    )


class _Lines(io.RawIOBase):
    """What is written goes to `out`; a last line without an end gets one before the next shard."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._last = out, b"\n"

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        written = bytes(content)
        self._last = written[-1:] or self._last
        self._out.write(written)
        return len(written)

    def end_line(self) -> None:
        """So that the first row of a shard is not glued to the last of the one before."""
        if self._last != b"\n":
            self.write(b"\n")


def shard_form(source: RunSource) -> str:
    """The name of a file of the data, in small letters: its ending says which form they have."""
    return next(iter(source.shards), source.data.name).lower()


def are_parquet(source: RunSource) -> bool:
    """Whether the shards are Parquet files."""
    return shard_form(source).endswith(PARQUET)
