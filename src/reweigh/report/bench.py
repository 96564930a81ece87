"""The figure of a benchmark: the cost of a step, method by method, model by model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import write_whole
from .figures import plotting, svg_text

GREY, OURS, OTHER = "#808080", "#2f7fd1", "#b0b0b0"


def write_bench_figure(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Bars of time as a ratio to a plain step, most threads first; a line at the floor 1 + m/n."""
    matplotlib, canvas = plotting()
    threads = max(row["threads"] for row in rows)
    settings = list(dict.fromkeys((r["model"], r["n"], r["m"]) for r in rows))
    columns = 2
    lines = -(-len(settings) // columns)
    style: dict[Any, Any] = {"svg.hashsalt": "bench", "font.size": 8, "text.color": GREY, "axes.edgecolor": GREY,
             "xtick.color": GREY, "ytick.color": GREY, "axes.titlecolor": GREY,
             "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip
    with matplotlib.rc_context(style):
        figure = canvas(figsize=(8, 1.7 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for axes, (model, n, m) in zip(panels, settings, strict=False):
            part = [r for r in rows if (r["model"], r["n"], r["m"], r["threads"])
                    == (model, n, m, threads) and r["method"] != "plain"]  # fmt: skip
            names = [r["method"] for r in part]
            colours = [OURS if r["method"] == "auto" else OTHER for r in part]
            axes.barh(names, [r["minimum"] for r in part], color=colours)
            axes.axvline(1 + m / n, color=GREY, linewidth=1, linestyle=":")
            axes.set_title(f"{model}, n={n}, m={m}", fontsize=8)
            axes.invert_yaxis()
        for axes in list(panels)[len(settings) :]:
            axes.set_visible(False)
        write_whole(path, svg_text(figure))
    return path
