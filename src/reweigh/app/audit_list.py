"""The ranking of a run as a file of the user's choice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ..files import whole_file
from ..runs import AUDIT_COLUMNS, RunFile, open_run
from ..tables import arrow
from .row_files import is_parquet, write_rows


def write_audit_list(
    run: Path, out: Path | None, *, head: int = 0
) -> tuple[Path, int, list[dict[str, Any]]]:
    """Copy a run's ranking to `out` (RUN/audit.csv); the path, the rows, and the first of them."""
    audit = open_run(run, needs=RunFile.SUMMARY).audit
    out = out or run / RunFile.AUDIT_LIST
    columns = list(AUDIT_COLUMNS)
    with arrow("parquet").ParquetFile(audit) as file:
        if is_parquet(out):
            with whole_file(out) as stream, audit.open("rb") as copied:
                shutil.copyfileobj(copied, stream)
        else:
            write_rows(out, file.iter_batches(columns=columns))
        first = next(file.iter_batches(head, columns=columns)).to_pylist() if head > 0 else []
        return out, file.metadata.num_rows, first
