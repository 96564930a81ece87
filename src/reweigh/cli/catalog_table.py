"""`reweigh reproduce list`: every experiment, and what it costs at each scale."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def print_catalog(console: Console) -> None:
    """One line per experiment: where it is in the paper, and cells and steps at each scale."""
    from ..experiments import EXPERIMENTS, SCALES, cell_steps, cells

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("id", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    for scale in SCALES:
        table.add_column(scale, justify="right", no_wrap=True)
    table.add_column("what")
    for experiment in EXPERIMENTS.values():
        cost = []
        for scale in SCALES:
            grid = cells(experiment, scale)
            steps = sum(map(cell_steps, grid))
            cost.append(f"{len(grid)} x {_thousands(steps / len(grid))}")
        table.add_row(experiment.id, experiment.paper, *cost, experiment.title)
    console.print(table)
    console.print(
        "\ncells x optimizer steps of a cell, on the average. smoke takes seconds and needs no data; "
        "small is for two cores; paper is for GPUs.\n"
        "run one with: reweigh reproduce ID --scale small --jobs 2",
        style="dim",
        soft_wrap=True,
    )


def _thousands(steps: float) -> str:
    return f"{steps / 1000:.1f}k" if steps >= 1000 else f"{steps:.0f}"
