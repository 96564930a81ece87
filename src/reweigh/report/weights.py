"""Figure 3: histograms of the weights of right and of wrong labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..results import Results
from .figures import Draw, Palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BINS = 16
TOP = 4.0  # times an equal share; what is beyond stands in the last bar


def histogram(results: Results, kind: str) -> Draw:
    """Shares of right and wrong labels by weight, in units of an equal share, over all seeds."""
    sides: dict[str, list[float]] = {"right": [], "wrong": []}
    for row in results.rows[:1]:
        for line in results.of(row["method"]):
            for batch in results.details(line)["weights"][kind]:
                count = len(batch["right"]) + len(batch["wrong"])
                for side, values in sides.items():
                    values.extend(count * weight for weight in batch[side])
    edges = np.linspace(0, TOP, BINS + 1)

    def draw(axes: Axes, palette: Palette) -> None:
        step = edges[1] - edges[0]
        for side, colour, place in (("right", palette.ours, 0.0), ("wrong", palette.plain, 0.5)):
            values = np.array(sides[side])
            zero = values <= 0
            counts, _ = np.histogram(np.clip(values[~zero], 0, TOP - 1e-9), bins=edges)
            shares = np.concatenate([[zero.sum()], counts]) / max(1, len(values))
            left = np.concatenate([[-step], edges[:-1]])
            axes.bar(
                left + place * step * 0.9 + 0.05 * step,
                100 * shares,
                width=0.45 * step,
                align="edge",
                facecolor=colour if side == "right" else "none",
                edgecolor=colour,
                hatch=None if side == "right" else "/////",
                linewidth=1,
                label=f"{side} label",
            )
        axes.set_xticks(
            [-step / 2, *range(int(TOP) + 1)][0:1] + list(range(1, int(TOP) + 1)),
            ["0", *map(str, range(1, int(TOP))), f"{int(TOP)}+"],
        )
        axes.set_xlim(-step * 1.2, TOP + 0.05)
        axes.set(xlabel="weight, 1 is an equal share", ylabel="share of its kind (%)")
        axes.legend(frameon=False, loc="upper right")
        axes.grid(visible=False, axis="x")

    return draw
