"""Draw docs/rule.svg from results/stability: trust over a run, and where the runs end.

python docs/rule_figure.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
CELLS, PICTURE = ROOT / "results" / "stability" / "cells.jsonl", ROOT / "docs" / "rule.svg"
SHOWN = {"part": "texts", "model": "mlp", "drawn": 0.1, "seed": 14}
COLOURS = {"plain": "#d1632f", "literal": "#808080", "safeguarded": "#2f7fd1"}
SHADES = ("#0b3c73", "#2f7fd1", "#8fc0ee")
GREY = "#808080"
NAMES = {"sgd": "SGD", "adamw": "AdamW"}


def cells() -> list[dict[str, Any]]:
    """The finished cells that are shown."""
    rows = [json.loads(line) for line in CELLS.read_text().splitlines()]
    return [row for row in rows if all(row[name] == value for name, value in SHOWN.items())]


def draw(rows: list[dict[str, Any]]) -> Any:
    """Trust on the left, accuracy on the right."""
    mpl.rcParams.update(
        {"svg.hashsalt": "rule", "svg.fonttype": "path", "font.size": 9, "text.color": GREY}
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    figure.patch.set_alpha(0)
    rates = sorted({(r["optimizer"], r["lr"]) for r in rows}, key=lambda x: (x[0] != "sgd", -x[1]))
    guarded = {(r["optimizer"], r["lr"]): r for r in rows if r["method"] == "safeguarded"}
    counts = {"sgd": 0, "adamw": 0}
    for rate in rates:
        if rate not in guarded:
            continue
        row, kind = guarded[rate], rate[0]
        every = row["steps"] / len(row["factors"])
        steps = [every * i for i in range(len(row["factors"]))]
        style = "-" if kind == "sgd" else "--"
        label = f"{NAMES[kind]} {rate[1]:g}"
        left.semilogy(
            steps, row["factors"], style, color=SHADES[counts[kind] % 3], lw=1.5, label=label
        )
        counts[kind] += 1
    left.set(title="trust", xlabel="step", ylim=(5e-5, 1.5))
    left.legend(frameon=False, fontsize=7, ncols=2, loc="upper right", labelcolor=GREY)
    for place, method in enumerate(COLOURS):
        finals = {
            (r["optimizer"], r["lr"]): 100 * r["final"] for r in rows if r["method"] == method
        }
        at = [i + (place - 1) * 0.25 for i, rate in enumerate(rates) if rate in finals]
        heights = [finals[rate] for rate in rates if rate in finals]
        right.bar(at, heights, 0.23, color=COLOURS[method], label=method)
    right.set(title="accuracy at the end", ylim=(0, 85))
    right.set_xticks(range(len(rates)), [f"{NAMES[k]}\n{lr:g}" for k, lr in rates])
    right.legend(frameon=False, fontsize=7, ncols=3, loc="upper center", labelcolor=GREY)
    for axes in (left, right):
        axes.patch.set_alpha(0)
        axes.tick_params(colors=GREY)
        axes.xaxis.label.set_color(GREY)
        for side, spine in axes.spines.items():
            spine.set_color(GREY)
            spine.set_visible(side in ("left", "bottom"))
    return figure


if __name__ == "__main__":
    draw(cells()).savefig(PICTURE, metadata={"Date": None})
