"""`reweigh demo`: the main job, on data inside the installed packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .bar import shown_bar

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()

NOISE_NAMES = {"uniform": "to any class", "background": "to one class"}
METHOD_NAMES = {"uniform": "plain", "reweigh": "reweighed"}


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where report.html and results.json go.")
    ] = Path("reweigh-demo"),
    seeds: Annotated[int, typer.Option(metavar="N", help="Repetitions, seeds 0 to N-1.")] = 3,
    steps: Annotated[int, typer.Option(metavar="N", help="Training steps of each run.")] = 2000,
    noise: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the train labels made wrong.")
    ] = 0.4,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes at a time.  [default: 2, or 1 on one core]"),
    ] = None,
) -> None:
    """Noisy digits, plain training against reweighed: a table, and a report to look at.

    Takes a minute or two, needs no download. If interrupted, the same command goes on where it
    stopped.
    """
    from rich.console import Console

    from ..files import writable_folder

    writable_folder(out)  # before the seconds that importing torch takes
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    with shown_bar(errors, "starting") as (bar, task):
        from ..experiments import DemoSettings, run_demo
        from ..report import write_report
        from .grid_progress import StepBar

        results = run_demo(
            out,
            seeds=seeds,
            settings=DemoSettings(steps=steps, noise=noise),
            jobs=jobs if jobs is not None else min(2, os.cpu_count() or 1),
            command=f"reweigh demo --seeds {seeds} --steps {steps} --noise {noise:g}",
            watcher=StepBar(errors, bar, task),
        )
        page = write_report(out)
    _print_table(console, results)
    console.print(f"\n{results['seconds']:.0f} s. Figures and suspects: {page}", soft_wrap=True)


def _print_table(console: Console, results: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("wrong labels")
    table.add_column("training")
    table.add_column("test accuracy", justify="right")
    table.add_column("finds wrong labels (AUROC)", justify="right")
    for line in results["summary"]:
        table.add_row(
            NOISE_NAMES[line["noise"]] if line["method"] == "uniform" else "",
            METHOD_NAMES[line["method"]],
            _with_spread(line),
            f"{line['noise_auroc']:.3f}",
        )
    alone = results["clean_only"]
    table.add_row("clean alone", METHOD_NAMES["uniform"], _with_spread(alone), "", style="dim")
    seeds = len(results["settings"]["seeds"])
    share = results["settings"]["noise"]
    console.print(
        f"\nDigits with {share:.0%} of the labels flipped, {seeds} seed{'s'[: seeds > 1]}"
    )
    console.print(table)
    if seeds > 1:
        console.print("± is a 95% interval of the mean over the seeds", style="dim")


def _with_spread(line: dict[str, Any]) -> str:
    width = line["test_accuracy_interval"]
    return f"{line['test_accuracy']:.3f}" + (f" ± {width:.3f}" if width is not None else "")
