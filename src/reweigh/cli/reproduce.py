"""`reweigh reproduce`: the paper's tables and figures, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()

_Name = Annotated[str, typer.Argument(metavar="ID", help="An experiment, or `list` for all.")]
_Scale = Annotated[
    str,
    typer.Option(
        metavar="SCALE",
        help="smoke: seconds, to see it run. small: hours on two cores. medium: minutes of a core for a "
        "plain cell, about three times that for ours. paper: the full setting, for GPUs.",
    ),
]
_Seeds = Annotated[
    int | None, typer.Option(metavar="N", help="Seeds 0 to N-1.  [default: the experiment's own]")
]
_Methods = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Only these methods.  [default: all of the experiment]"),
]
_Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Only such settings: share=0.98. May be repeated."),
]
_Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Cells at a time.  [default: 2, or 1 on one core; all that a Ray cluster has room for]",
    ),
]
_Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Threads of a cell; another number rounds otherwise.  [default: cores / jobs]",
    ),
]
_Engine = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        help="local: processes of this machine. ray: the machines of a Ray cluster, or one "
        "started here. The numbers are the same.",
    ),
]
_Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="With --engine ray: a running cluster's, or `auto` on one of its machines.  "
        "[default: start one here]",
    ),
]
_AsPublished = Annotated[
    bool,
    typer.Option(
        "--as-published", help="The ways of the published code where they differ from the text."
    ),
]
_Reuse = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Take over the same cells from another experiment's results folder. May be repeated.",
    ),
]
_Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Results folder.  [default: reweigh-ID-SCALE]")
]


@app.command()
def reproduce(
    name: _Name,
    scale: _Scale = "small",
    seeds: _Seeds = None,
    methods: _Methods = None,
    only: _Only = None,
    jobs: _Jobs = None,
    threads: _Threads = None,
    engine: _Engine = "local",
    address: _Address = None,
    as_published: _AsPublished = False,
    reuse: _Reuse = None,
    out: _Out = None,
) -> None:
    """Run an experiment of the paper, or `human-noise`: its methods, settings and seeds, and the report.

    Every finished cell is kept at once; the same command goes on where it stopped and tries again
    what failed.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if name == "list":
        _print_catalog(console)
        return
    from ..experiments import cells, described, find_experiment, run_grid
    from ..report import write_report
    from .grid_progress import watching

    chosen = find_experiment(name)
    names = [] if methods is None else [m.strip() for m in methods.split(",") if m.strip()]
    pairs = _pairs(only or [])
    grid = cells(chosen, scale, as_published=as_published, seeds=seeds, methods=names, only=pairs)
    about = described(chosen, scale, as_published=as_published)
    suffix = "-as-published" if as_published else ""
    folder = out or Path(f"reweigh-{name}-{scale}{suffix}")
    with watching() as watcher:
        failed = run_grid(
            grid,
            about,
            out=folder,
            jobs=jobs,
            threads=threads,
            engine=engine,
            address=address,
            reuse=reuse or (),
            watcher=watcher,
        )
    console.print(f"report: {write_report(folder)}", soft_wrap=True)
    if failed:
        for cell in failed:
            console.print(f"failed: {cell.key}", style="red", soft_wrap=True)
        console.print(
            f"{len(failed)} of {len(grid)} cells failed; why is in {folder / 'failures.jsonl'}. "
            "The same command tries them again.",
            soft_wrap=True,
        )
        raise typer.Exit(1)


def _pairs(texts: list[str]) -> dict[str, str]:
    from ..errors import SettingError

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise SettingError(f"--only {text!r}; expected NAME=VALUE, such as share=0.98")
        pairs[name] = value
    return pairs


def _print_catalog(console: Console) -> None:
    """One line per experiment: where it is in the paper, and cells and steps at each scale."""
    from statistics import mean

    from rich.table import Table

    from ..experiments import EXPERIMENTS, SCALES, cell_steps, cells

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("id", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    for scale in SCALES:
        table.add_column(scale, justify="right", no_wrap=True)
    table.add_column("what")
    for experiment in EXPERIMENTS.values():
        grids = [cells(experiment, scale) for scale in SCALES]
        cost = [f"{len(grid)} x {_thousands(mean(map(cell_steps, grid)))}" for grid in grids]
        table.add_row(experiment.id, experiment.paper, *cost, experiment.title)
    console.print(table)
    console.print(
        "\ncells x optimizer steps of a cell, on the average. smoke takes seconds and needs no data; "
        "small and medium are for two cores; paper is for GPUs.\n"
        "run one with: reweigh reproduce ID --scale medium --jobs 2",
        style="dim",
        soft_wrap=True,
    )


def _thousands(steps: float) -> str:
    return f"{steps / 1000:.1f}k" if steps >= 1000 else f"{steps:.0f}"
