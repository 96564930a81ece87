"""Figure 6: confusion matrices as squares of one colour; the larger a share, the darker its square."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..results import Json, Results
from .figures import Draw, Palette
from .settings import NOISES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def target(results: Results, method: str, setting: Json) -> str:
    """What the labels were flipped to, in words: the name of the background class if there is one."""
    if setting["noise"] != "background":
        return NOISES[setting["noise"]]
    line = results.of(method, setting)[0]
    setup = next(s for s in results.about["setups"] if s["setting"] == setting)
    classes = setup["backgrounds"] or [setup["recipe"]["background"]]
    return f"“{results.details(line)['classes'][classes[line['seed'] % len(classes)]]}”"


def matrix(results: Results, method: str, setting: Json) -> Draw:
    """Rows are the true classes; of the first seed."""
    details = results.details(results.of(method, setting)[0])
    counts = np.array(details["confusion"], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = details["classes"]

    def draw(axes: Axes, palette: Palette) -> None:
        from matplotlib.patches import Rectangle

        for row, column in np.ndindex(*shares.shape):
            share = float(shares[row, column])
            if share >= 0.005:
                axes.add_patch(
                    Rectangle((column, row), 1, 1, facecolor=palette.ours, alpha=share, linewidth=0)
                )
        n = len(names)
        places = np.arange(n) + 0.5
        axes.set_xticks(places, names, rotation=90)
        axes.set_yticks(places, names)
        axes.tick_params(length=0, labelsize=8)
        axes.set(xlim=(0, n), ylim=(n, 0), xlabel="taken for", ylabel="true class", aspect="equal")
        axes.grid(visible=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)

    return draw
