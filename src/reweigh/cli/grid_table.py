"""How a grid goes: a live table on a terminal, a line per finished cell elsewhere.

The table has a row a method and a column a setting; an entry is the mean test accuracy so far and,
while seeds are missing, how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ..experiments.experiment import Cell
    from ..experiments.grid import Watcher

Json = dict[str, Any]


@contextmanager
def watching(console: Console | None = None) -> Iterator[Watcher]:
    """A watcher for this terminal, or for a file."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    table = LiveTable()
    with Live(table, console=console, refresh_per_second=4):
        yield table


class _Tally:
    """What both kinds count."""

    def __init__(self) -> None:
        self.cells: Sequence[Cell] = ()
        self.finished: dict[str, Json] = {}
        self.broken: set[str] = set()

    def start(self, cells: Sequence[Cell], finished: dict[str, Json], steps: int) -> None:
        self.cells = cells
        self.finished = {c.key: finished[c.key] for c in cells if c.key in finished}

    def tick(self, steps: int) -> None:
        """Only the table counts steps."""

    def done(self, cell: Cell, line: Json) -> None:
        self.finished[cell.key] = line

    def failed(self, cell: Cell, error: str) -> None:
        self.broken.add(cell.key)

    @property
    def position(self) -> str:
        return f"[{len(self.finished) + len(self.broken)}/{len(self.cells)}]"


class Lines(_Tally):
    """Plain lines."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def start(self, cells: Sequence[Cell], finished: dict[str, Json], steps: int) -> None:
        """Say what there is to do."""
        super().start(cells, finished, steps)
        if self.finished:
            self._print(f"{len(self.finished)} of {len(cells)} cells are finished; going on")

    def done(self, cell: Cell, line: Json) -> None:
        """Say how the cell came out."""
        super().done(cell, line)
        accuracy = line["metrics"]["test_accuracy"]
        self._print(
            f"{self.position} {cell.key}: test accuracy {accuracy:.4f} ({line['seconds']:.0f} s)"
        )

    def failed(self, cell: Cell, error: str) -> None:
        """Say why."""
        super().failed(cell, error)
        self._print(f"{self.position} {cell.key}: FAILED: {error}")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


class LiveTable(_Tally):
    """Drawn anew a few times a second by rich."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("starting", total=None)

    def start(self, cells: Sequence[Cell], finished: dict[str, Json], steps: int) -> None:
        """Set the bar to the steps to come."""
        super().start(cells, finished, steps)
        self._bar.update(self._task, total=max(1, steps))

    def tick(self, steps: int) -> None:
        """Move the bar."""
        self._bar.advance(self._task, steps)

    def __rich__(self) -> Group:
        """The table and the bar under it."""
        self._bar.update(self._task, description=f"{self.position} cells")
        return Group(self._table(), self._bar)

    def _table(self) -> Table:
        columns = list(dict.fromkeys(_setting(cell) for cell in self.cells))
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("test accuracy")
        for column in columns:
            table.add_column(column, justify="right")
        for method in dict.fromkeys(cell.method for cell in self.cells):
            table.add_row(method, *(self._entry(method, column) for column in columns))
        return table

    def _entry(self, method: str, column: str) -> str:
        mine = [c for c in self.cells if c.method == method and _setting(c) == column]
        values = [
            self.finished[c.key]["metrics"]["test_accuracy"] for c in mine if c.key in self.finished
        ]
        broken = sum(c.key in self.broken for c in mine)
        parts = [f"{sum(values) / len(values):.3f}"] if values else []
        if broken:
            parts.append(f"[red]{broken} failed[/red]")
        if len(values) < len(mine):
            parts.append(f"[dim]{len(values)}/{len(mine)}[/dim]")
        return " ".join(parts)


def _setting(cell: Cell) -> str:
    return " ".join(f"{name}={value}" for name, value in cell.setting)
