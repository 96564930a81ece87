"""`reweigh bench`: the cost of a reweighed step, as a ratio to a plain one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from ..experiments.bench import Measurement

app = typer.Typer()


@app.command()
def bench(
    model: Annotated[
        str | None,
        typer.Option(metavar="M", help="One or more names, comma-separated.  [default: all]"),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Examples in the train batch.")] = 100,
    m: Annotated[str, typer.Option("-m", metavar="M", help="Clean examples, one or more.")] = (
        "10,100"
    ),
    threads: Annotated[str, typer.Option(metavar="T", help="Threads, one or more numbers.")] = "2",
    peers: Annotated[
        bool, typer.Option("--peers", help="Also general meta-learning libraries, if installed.")
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Also compiled steps (plain, ours, peers), against the compiled plain step.",
        ),
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(metavar="B", help="Back-ends beside auto, one or more.  [default: all]"),
    ] = None,
    device: Annotated[str, typer.Option(metavar="D", help="Such as cuda.")] = "cpu",
    seconds: Annotated[float, typer.Option(metavar="S", help="To time each setting for.")] = 15.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="F",
            help="Keep results in F and a figure beside it; a second call goes on from there.",
        ),
    ] = None,
) -> None:
    """Time, operations and memory of every back-end, taking turns with a plain step."""
    numbers, counts = _numbers("-m", m), _numbers("--threads", threads)
    from rich.console import Console

    from ..files import writable_folder

    if out is not None:
        writable_folder(out.parent)
    from ..experiments import CASES, METHODS, keep_large_blocks, run_bench

    keep_large_blocks()  # for the plain step as well
    console = Console(highlight=False)
    names = list(CASES) if model is None else model.split(",")
    for part in run_bench(
        names, n=n, clean=numbers, threads=counts, with_peers=peers, with_compiled=compiled,
        methods=METHODS if methods is None else methods.split(","), seconds=seconds, device=device, out=out,
    ):  # fmt: skip
        console.print(_heading(part[0]), _table(part, compiled=compiled), sep="\n")
        console.print(*_reasons(part), sep="", end="", soft_wrap=True)
    if out is not None:
        from ..report import write_bench_figure

        kept = json.loads(out.read_text(encoding="utf-8"))["rows"]  # also of earlier calls
        figure = write_bench_figure(kept, out.with_suffix(".svg"))
        console.print(f"\n{out} and {figure}", soft_wrap=True)


def _heading(plain: Measurement) -> str:
    """The setting, and what a plain step takes in it."""
    return (
        f"\nn={plain.n}, m={plain.m}, {plain.threads} threads: a plain step takes "
        f"{plain.milliseconds:.1f} ms; {plain.zero_share:.0%} of the weights are zero"
    )


def _table(rows: Sequence[Measurement], *, compiled: bool) -> Table:
    """The methods of one setting; the first row is the plain step, which the others are ratios to."""
    from rich.table import Table

    columns = [rows[0].model, "time", "median", "operations", "memory"]
    columns += ["to compiled plain", "seconds to compile"] if compiled else []
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    for row in rows[1:]:
        label = row.method if row.method == row.runs else f"{row.method} ({row.runs})"
        values = [row.minimum, row.median, row.operations, row.memory]
        values += [row.to_compiled, row.compile_seconds] if compiled else []
        table.add_row(label, *("" if value is None else f"{value:.2f}" for value in values))
    return table


def _reasons(rows: Sequence[Measurement]) -> list[str]:
    """Why steps of other libraries are not compiled."""
    return [f"{r.method} is not compiled. {r.not_compiled}\n" for r in rows if r.not_compiled]


def _numbers(option: str, text: str) -> list[int]:
    from ..errors import SettingError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"{option} is {text!r}; expected numbers such as 10,100") from None
