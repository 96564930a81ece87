"""Rows as a .csv or .parquet file, written piece by piece, whole or not there."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from ..errors import DataError
from ..files import whole_file
from ..tables import Piece, arrow
from ..text import harmless

ENDINGS = (".csv", ".parquet")


def write_rows(out: Path, pieces: Iterable[Piece]) -> int:
    """Write pyarrow tables or record batches of the same columns, one at least; the number of rows.

    In a .csv, cells that a spreadsheet would run get an apostrophe in front.
    """
    write = _write_parquet if is_parquet(out) else _write_csv
    with whole_file(out) as stream:
        return write(stream, pieces)


def is_parquet(out: Path) -> bool:
    """Whether the name asks for Parquet; refuses names of neither."""
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"{out} has an unknown ending; expected .csv or .parquet")
    return ending == ".parquet"


def _write_parquet(stream: IO[bytes], pieces: Iterable[Piece]) -> int:
    pa, rows, writer = arrow(), 0, None
    for piece in pieces:
        table = piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
        writer = writer or arrow("parquet").ParquetWriter(stream, table.schema)
        writer.write_table(table)
        rows += table.num_rows
    assert writer is not None, "there is a piece"
    writer.close()
    return rows


def _write_csv(stream: IO[bytes], pieces: Iterable[Piece]) -> int:
    text, rows = io.TextIOWrapper(stream, encoding="utf-8", newline=""), 0
    writer = csv.writer(text)
    for piece in pieces:
        if not rows:
            writer.writerow([harmless(name) for name in piece.schema.names])
        writer.writerows([_cell(cell) for cell in row.values()] for row in piece.to_pylist())
        rows += piece.num_rows
    text.flush()
    text.detach()  # closed with the stream, whoever opened it
    return rows


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return harmless(value) if isinstance(value, str) else value
