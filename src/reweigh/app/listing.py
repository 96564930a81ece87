"""The ranking of a run as a file of the user's choice."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..files import whole
from ..runs import AUDIT_COLUMNS, AUDIT_LIST, SUMMARY, open_run
from ..tables import arrow
from ..text import harmless


def write_listing(
    run: Path, out: Path | None, *, head: int = 0
) -> tuple[Path, int, list[dict[str, Any]]]:
    """Copy a run's ranking to `out` (RUN/audit.csv); the path, the rows, and the first of them."""
    source = open_run(run, needs=SUMMARY).audit
    out = out or run / AUDIT_LIST
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{out} has an unknown ending; expected .csv or .parquet")
    file = arrow("parquet").ParquetFile(source)
    with file:
        first = next(file.iter_batches(max(1, head)), None)
        shown = [] if first is None or not head else first.to_pylist()
        with whole(out) as stream:
            if out.suffix.lower() == ".parquet":
                with source.open("rb") as copied:
                    shutil.copyfileobj(copied, stream)
            else:
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                writer = csv.writer(text)
                writer.writerow(AUDIT_COLUMNS)
                for piece in file.iter_batches():
                    for row in piece.to_pylist():
                        writer.writerow([_cell(row[name]) for name in AUDIT_COLUMNS])
                text.flush()
                text.detach()
        return out, file.metadata.num_rows, shown


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return harmless(value) if isinstance(value, str) else value
