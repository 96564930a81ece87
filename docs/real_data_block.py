"""What docs/own-data.md shows of results/real_data: the table, and docs/real-data.svg."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
FOLDER, PICTURE = ROOT / "results" / "real_data", ROOT / "docs" / "real-data.svg"
GREY, OURS, THEIRS = "#808080", "#2f7fd1", "#d1632f"


def block() -> str:
    """The table of the benchmark, without its title."""
    _, _, rest = (FOLDER / "table.md").read_text(encoding="utf-8").partition("\n\n")
    return rest.strip()


def draw() -> None:
    """A line a data set and size: the best simple baseline, and `reweigh train`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "real-data", "svg.fonttype": "path", "font.size": 10})
    frame = pd.DataFrame(map(json.loads, (FOLDER / "cells.jsonl").read_text().splitlines()))
    frame = frame.drop_duplicates(
        ["dataset", "checked", "seed"], keep="last"
    )  # run again: the later
    groups = list(frame.sort_values(["dataset", "checked"]).groupby(["dataset", "checked"]))
    figure = Figure(figsize=(8, 0.9 + 0.24 * len(groups)), layout="constrained")
    axes = figure.subplots()
    for row, (_, group) in enumerate(reversed(groups)):
        ours = 100 * group["reweigh_train"].mean()
        best = 100 * pd.DataFrame(list(group["simple"])).mean().max()
        first = row == 0
        axes.plot([best, ours], [row, row], color=OURS if ours > best else THEIRS, linewidth=1)
        axes.plot(best, row, "D", color=THEIRS, label="the best simple baseline" if first else None)
        axes.plot(ours, row, "o", color=OURS, label="reweigh train" if first else None)
    names = [f"{name}, {checked} checked" for (name, checked), _ in reversed(groups)]
    axes.set_yticks(range(len(groups)), names)
    axes.set_xlabel("accuracy on unseen rows, %", color=GREY)
    axes.grid(axis="x", alpha=0.3)
    axes.tick_params(colors=GREY)
    for spine in axes.spines.values():
        spine.set_color(f"{GREY}60")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=GREY)
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None})
