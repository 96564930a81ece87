"""What `reweigh train` shows while it runs and when it is done."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..text import numeral
from .bar import shown_bar
from .time_left import TimeLeft

if TYPE_CHECKING:
    from ..app import Signs
    from ..runs import RunSummary


def tell(summary: RunSummary, out: Path, page: Path) -> None:
    """The figures, the notes and what to do next."""
    shown = _percent if summary.metric == "accuracy" else _number
    if summary.figure is not None:
        kinds = {"test": "test", "holdout": "held-out clean", "validation": "validation"}
        kind = kinds.get(summary.judged_on, "checked (cross-validated)")
        typer.echo(
            f"\n{summary.metric} on {summary.judged_rows:,} {kind} rows: "
            f"{shown(summary.figure, summary.interval)}"
        )
    most = max((each.rows for each in summary.candidates), default=0)
    for each in summary.candidates:
        figure = each.accuracy if each.error is None else each.error
        few = f" ({each.rows:,} rows)" if each.rows < most else ""
        figures = shown(figure or 0, each.interval)
        typer.echo(f"  {'*' if each.chosen else ' '} {figures:>14}  {each.title}{few}")
    if summary.why_chosen:
        typer.echo(_lines(summary.why_chosen))
    for line in summary.comparison:
        gain = shown(line.gain, line.interval, sign="+")
        typer.echo(f"  {line.name}: {shown(line.figure)}   gain of reweighing {gain}")
    typer.echo(
        f"{summary.suggestions:,} of {summary.train_rows:,} labels look wrong to the reweighed network"
    )
    if (labels := summary.labels) is not None:
        low, high = (f"{100 * share:.0f}" for share in (labels.wrong.low, labels.wrong.high))
        flagged = (
            f"{labels.flagged:,} are flagged, of which at most 10% are expected to be right"
            if labels.flagged
            else "none can be flagged with few false alarms (`reweigh audit` says why)"
        )
        typer.echo(_lines(f"estimated: {low} to {high}% are wrong; {flagged}"))
    for advice in summary.warnings:
        typer.secho(_lines(f"note: {advice.what} {advice.do}"), fg=typer.colors.YELLOW)
    typer.echo(f"report: {page}\nnext:   reweigh audit {out}   or   reweigh review {out}")


def _lines(text: str) -> str:
    """Wrapped between words where a person reads it; one line for other programs."""
    if not sys.stdout.isatty():
        return text
    width = max(40, shutil.get_terminal_size().columns - 1)
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False)


def _percent(share: float, interval: float | None = None, *, sign: str = "") -> str:
    about = "" if interval is None else f" ± {100 * interval:4.1f}"
    return f"{100 * share:{sign}.1f}%{about}"


def _number(value: float, interval: float | None = None, *, sign: str = "") -> str:
    about = "" if interval is None else f" ± {numeral(interval, 3)}"
    return f"{numeral(value, 4, sign=bool(sign))}{about}"


@contextmanager
def signs() -> Iterator[Signs]:
    """Notices and a bar on standard error."""
    from rich.console import Console

    from ..app import Signs

    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with shown_bar(console, "reading") as (bar, task):

        def show(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share, total=1.0)

        watch = TimeLeft(show, None if console.is_terminal else console.print)
        judged: list[Any] = ["", 0, 1]

        def encoding(what: str, done: int, total: int) -> None:
            watch.at(what, done / max(1, total))
            bar.update(task, description=what, completed=done, total=total)

        def step(method: str, now: Any) -> None:
            watch.at(f"training {method}", now.step / now.steps, detail=_of(now.step, now.steps))

        def judging(candidate: str, done: int, total: int) -> None:
            judged[:] = candidate, done, total
            watch.at(f"judging {candidate}", done / max(1, total), detail=_of(done, total))

        def fold(now: Any) -> None:
            candidate, done, total = judged
            part = (done + now.step / now.steps) / max(1, total)
            detail = f"{_of(done, total)}, step {_of(now.step, now.steps)}"
            watch.at(f"judging {candidate}", min(1.0, part), detail=detail)

        yield Signs(
            say=console.print, stages=watch.plan, encoding=encoding, step=step, judging=judging,
            fold=fold,
        )  # fmt: skip


def _of(done: int, total: int) -> str:
    return f"{done:,} of {total:,}"
