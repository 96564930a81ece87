"""How a grid goes: a live table on a terminal, a line per finished cell elsewhere; the demo's bar.

The table has one row per method and one column per setting; an entry is the mean test accuracy so far
and, while seeds are missing, how many there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from ..experiments import Cell, Watcher, cell_steps
from .bar import columns

Json = dict[str, Any]


@contextmanager
def watching() -> Iterator[Watcher]:
    """A watcher for this terminal, or for a file."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield CellLines(console)
        return
    table = LiveTable()
    with Live(table, console=console, refresh_per_second=4):
        yield table


class CellLines(Watcher):
    """Counts the cells, and says of each how it came out; without a console it is silent."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self.cells: Sequence[Cell] = ()
        self.finished: dict[str, Json] = {}
        self.broken: set[str] = set()

    def start(self, cells: Sequence[Cell], finished: Mapping[str, Json], steps: int) -> None:
        """Say what there is to do."""
        self.cells = cells
        self.finished = {c.key: finished[c.key] for c in cells if c.key in finished}
        if self.finished:
            self._print(f"{len(self.finished)} of {len(cells)} cells are finished; going on")

    def done(self, cell: Cell, line: Json) -> None:
        """Say how the cell came out."""
        self.finished[cell.key] = line
        if self._console is not None:
            how = f"test accuracy {line['metrics']['test_accuracy']:.4f} ({line['seconds']:.0f} s)"
            self._print(f"{self.position} {cell.key}: {how}")

    def failed(self, cell: Cell, error: str) -> None:
        """Say why."""
        self.broken.add(cell.key)
        self._print(f"{self.position} {cell.key}: FAILED: {error}")

    @property
    def position(self) -> str:
        """Cells that were tried, of all."""
        return f"[{len(self.finished) + len(self.broken)}/{len(self.cells)}]"

    def _print(self, text: str) -> None:
        if self._console is not None:
            self._console.print(text, soft_wrap=True, markup=False)


class LiveTable(CellLines):
    """Drawn anew a few times a second by rich."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = Progress(*columns())
        self._task = self._bar.add_task("starting", total=None)

    def start(self, cells: Sequence[Cell], finished: Mapping[str, Json], steps: int) -> None:
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
        settings = list(dict.fromkeys(_setting(cell) for cell in self.cells))
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("test accuracy")
        for setting in settings:
            table.add_column(setting, justify="right")
        for method in dict.fromkeys(cell.method for cell in self.cells):
            table.add_row(method, *(self._entry(method, setting) for setting in settings))
        return table

    def _entry(self, method: str, setting: str) -> str:
        mine = [c for c in self.cells if c.method == method and _setting(c) == setting]
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


class StepBar(Watcher):
    """A bar of the steps of all cells; a line at every tenth of the way where there is no terminal."""

    def __init__(self, console: Console, bar: Progress, task: Any) -> None:
        self._console, self._bar, self._task = console, bar, task
        self._total, self._done = 1, 0

    def start(self, cells: Sequence[Cell], finished: Mapping[str, Json], steps: int) -> None:
        """Say where an earlier call stopped; `steps` are still to do."""
        before = sum(cell_steps(cell) for cell in cells if cell.key in finished)
        self._total, self._done = before + steps, before
        self._bar.update(self._task, description="training", total=self._total, completed=before)
        if before:
            share = before / self._total
            self._console.print(f"going on where the last call stopped: {share:.0%} done")

    def tick(self, steps: int) -> None:
        """Move the bar."""
        before, self._done = self._done, self._done + steps
        self._bar.update(self._task, completed=self._done)
        tenths = 10 * self._done // self._total
        if not self._console.is_terminal and tenths > 10 * before // self._total:
            self._console.print(f"training: {self._done / self._total:.0%}")
