"""Rows as a .csv or .parquet file, written piece by piece, whole or not there; a ranking as one."""

import csv
import io
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from ..files import whole_file
from ..runs import AUDIT_COLUMNS, RunFile, open_run, reading_parquet
from ..tables import Piece, arrow
from ..text import harmless
from .output_files import check_output, is_parquet


def write_rows(out: Path, pieces: Iterable[Piece]) -> int:
    """Write pyarrow tables or record batches of the same columns, one at least; the number of rows.

    In a .csv, cells that a spreadsheet would run get an apostrophe in front.
    """
    write = _write_parquet if is_parquet(out) else _write_csv
    with whole_file(out) as stream:
        return write(stream, pieces)


def write_audit_list(
    run: Path, out: Path | None, *, head: int = 0, force: bool = False
) -> tuple[Path, int, list[dict[str, Any]]]:
    """Copy a run's ranking to `out` (RUN/audit.csv); the path, the rows, and the first of them."""
    opened = open_run(run, needs=RunFile.SUMMARY)
    audit, out = opened.path / RunFile.AUDIT, out or run / RunFile.AUDIT_LIST
    check_output(out, opened, force=force)
    rows, first = read_audit_list(run, head=head)
    with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
        if is_parquet(out):
            with whole_file(out) as stream, audit.open("rb") as copied:
                shutil.copyfileobj(copied, stream)
        else:
            write_rows(out, file.iter_batches(columns=list(AUDIT_COLUMNS)))
    return out, rows, first


def read_audit_list(run: Path, *, head: int) -> tuple[int, list[dict[str, Any]]]:
    """How many rows a run ranked, and the first of them."""
    audit = open_run(run, needs=RunFile.SUMMARY).path / RunFile.AUDIT
    with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
        pieces = file.iter_batches(max(head, 1), columns=list(AUDIT_COLUMNS))
        return file.metadata.num_rows, next(pieces).to_pylist()[:head] if head > 0 else []


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
