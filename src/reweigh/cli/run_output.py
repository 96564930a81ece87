"""What `reweigh train` shows while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..text import numeral
from .bar import shown_bar

if TYPE_CHECKING:
    from ..app import Signs


def tell(summary: dict[str, Any], out: Path, page: Path) -> None:
    """The figures, the notes and what to do next."""
    metric, where = summary["metric"], summary["judged_on"]
    if where:
        rows = f"{summary['judged_rows']:,} {'test' if where == 'test' else 'held-out clean'} rows"
        interval = (
            f" ± {numeral(summary['interval'], 3)}" if summary["interval"] is not None else ""
        )
        typer.echo(f"\n{metric} on {rows}: {numeral(summary['figure'], 4)}{interval}")
        for line in summary["comparison"]:
            half = "" if line["interval"] is None else f" ± {numeral(line['interval'], 3)}"
            gain = numeral(line["gain"], 3, sign=True)
            typer.echo(f"  {line['name']}: {numeral(line['figure'], 4)}   gain {gain}{half}")
    typer.echo(f"{summary['suggestions']:,} of {summary['train_rows']:,} labels look wrong")
    for warning in summary["warnings"]:
        typer.secho(f"note: {warning['what']} {warning['do']}", fg=typer.colors.YELLOW)
    typer.echo(f"report: {page}\nnext:   reweigh audit {out}   or   reweigh review {out}")


@contextmanager
def signs() -> Iterator[Signs]:
    """Notices and a bar on standard error."""
    from rich.console import Console

    from ..app import Signs

    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with shown_bar(console, "reading") as (bar, task):
        quarters: dict[str, int] = {}

        def encoding(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        def step(method: str, now: Any) -> None:
            bar.update(task, description=f"training {method}", completed=now.step, total=now.steps)
            quarter = 4 * now.step // now.steps
            if not console.is_terminal and quarter != quarters.get(method, 0):
                console.print(f"training {method}: {now.step / now.steps:.0%}")
            quarters[method] = quarter

        yield Signs(say=console.print, encoding=encoding, step=step)
