"""The ranking of a run as a list of the user's: `reweigh audit`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..exchange import format_of, write_rows
from ..runs import AUDIT_COLUMNS, RunFile, TrainedRun, open_run, reading_parquet
from ..tables import Piece, arrow
from .output_files import check_output

CHUNK = 100_000
"""Rows at a time; for each, the data are read once."""


def write_audit_list(
    run: Path,
    out: Path | None,
    *,
    head: int = 0,
    force: bool = False,
    form: str | None = None,
    rows: int | None = None,
    say: Callable[[str], None] = print,
) -> tuple[Path, int, list[dict[str, Any]]]:
    """Write a run's ranking to `out` (RUN/audit.csv); the path, the rows, and the first of them.

    form    one of `exchange.FORMATS`; None: a table
    rows    write the first of the ranking only

    Texts and paths are left out of a table, and that is said, where the data are gone or have changed.
    """
    opened = open_run(run, needs=RunFile.SUMMARY)
    chosen, out = format_of(form, out), out or run / RunFile.AUDIT_LIST
    check_output(out, opened, endings=chosen.endings, beside=chosen.beside(out), force=force)
    _, first = read_audit_list(run, head=head)
    pieces = RankedPieces(opened, rows)
    try:
        written = chosen.write(opened.source, pieces, out)
    except DataError as error:
        if chosen.name != "table":
            raise
        say(f"the list has no texts and paths: {error}")
        written = write_rows(out, pieces)
    return out, written, first


def read_audit_list(run: Path, *, head: int) -> tuple[int, list[dict[str, Any]]]:
    """How many rows a run ranked, and the first of them."""
    audit = open_run(run, needs=RunFile.SUMMARY).path / RunFile.AUDIT
    with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
        pieces = file.iter_batches(max(head, 1), columns=list(AUDIT_COLUMNS))
        return file.metadata.num_rows, next(pieces).to_pylist()[:head] if head > 0 else []


@dataclass(frozen=True)
class RankedPieces:
    """The first `rows` of a run's ranking, None for all, as record batches; can be read again."""

    run: TrainedRun
    rows: int | None = None

    def __iter__(self) -> Iterator[Piece]:
        audit, left = self.run.path / RunFile.AUDIT, self.rows
        with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
            for piece in file.iter_batches(CHUNK, columns=list(AUDIT_COLUMNS)):
                yield piece if left is None else piece.slice(0, left)
                left = None if left is None else left - piece.num_rows
                if left is not None and left <= 0:
                    return
