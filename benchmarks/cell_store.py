"""Grids run cell by cell: a finished cell is a line of JSON, and the same command runs what is missing.

    store = CellStore(path, ("data", "seed"))
    store.run_missing(cells, run, jobs=2)       # run(cell) -> row, in processes of their own
    store.rows()                                # {(data, seed): row}

A cut loses the cells that were running. A cell that fails is told and tried again by the next call.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class CellStore:
    """Rows in a file, told apart by `fields`."""

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        self.path, self.fields = path, tuple(fields)

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.fields)

    def rows(self) -> dict[tuple[Any, ...], Row]:
        """In the order in which they were run; of two lines for one cell, the later."""
        text = self.path.read_text() if self.path.exists() else ""
        complete = text[: text.rfind("\n") + 1]  # a cut can leave half a last line
        found: dict[tuple[Any, ...], Row] = {}
        for row in map(json.loads, complete.splitlines()):
            found.pop(self.key(row), None)
            found[self.key(row)] = row
        return found

    def append(self, rows: Sequence[Row]) -> None:
        """Add finished cells."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_half_a_line()
        with self.path.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def run_missing(
        self,
        cells: Sequence[Row],
        run: Callable[[Row], Row],
        *,
        jobs: int,
        outdated: Callable[[Row], bool] = lambda row: False,
    ) -> None:
        """outdated: finished cells that are run again. Of two lines the later one counts."""
        done = {key: row for key, row in self.rows().items() if not outdated(row)}
        todo = [cell for cell in cells if self.key(cell) not in done]
        print(f"{len(done)} cells done, {len(todo)} to run with {jobs} jobs", flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_half_a_line()
        with ProcessPoolExecutor(jobs) as pool, self.path.open("a") as file:
            running = {pool.submit(run, cell): cell for cell in todo}
            for count, future in enumerate(as_completed(running), start=1):
                what = f"{count} of {len(todo)}: {' '.join(map(str, self.key(running[future])))}"
                if error := future.exception():
                    print(f"{what} failed: {error!r}", flush=True)
                    continue
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
                print(what, flush=True)

    def _drop_half_a_line(self) -> None:
        if self.path.exists():
            content = self.path.read_bytes()
            with self.path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)


def command(
    about: str | None,
    store: CellStore,
    cells: Sequence[Row],
    run: Callable[[Row], Row],
    table: Callable[[dict[tuple[Any, ...], Row]], str],
) -> None:
    """A benchmark's command line: run what is missing, one at a time, then write the table."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--table", action="store_true", help="only write the table")
    if not parser.parse_args().table:
        store.run_missing(cells, run, jobs=1)
    (store.path.parent / "table.md").write_text(table(store.rows()))
