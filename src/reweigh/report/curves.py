"""Figure 7: accuracy during training, on validation images and on what was learnt by heart."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ..results import Json, Results
from .figures import Palette, name_lines
from .lines import LinePlot, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


VALIDATION, TRAINING = "hyper_true_accuracy", "train_accuracy"


def during_training(results: Results) -> LinePlot:
    """A solid and a dotted line per method, of its first seed."""
    drawn = []
    for method, style in styles(results.rows).items():
        mine = results.of(method)
        if mine:
            curve = [p for p in results.details(mine[0])["curve"] if p["phase"] == "main"]
            drawn.append((style, curve))

    def draw(axes: Axes, palette: Palette) -> None:
        for rate_falls in _drops(drawn[0][1]):
            axes.axvline(rate_falls, color=palette.muted, linewidth=0.8, linestyle=(0, (2, 3)))
        for style, curve in drawn:
            steps = [point["step"] for point in curve]
            colour = style.of(palette)
            axes.plot(steps, [p[VALIDATION] for p in curve], color=colour, lw=style.width,
                      marker=style.marker, markersize=3.5, markevery=max(1, len(curve) // 8),
                      label=style.name)  # fmt: skip
            axes.plot(steps, [p[TRAINING] for p in curve], color=colour, lw=1.3,
                      linestyle=(0, (1, 1.3)))  # fmt: skip
        axes.set(xlabel="training step", ylabel="accuracy", ylim=(0, 1.02))
        axes.set_xlim(0, max(point["step"] for _, curve in drawn for point in curve))
        axes.locator_params(axis="x", nbins=5)
        name_lines(axes, palette)

    return LinePlot([style for style, _ in drawn], [], draw)


def _drops(curve: list[Json]) -> list[int]:
    """The evaluations after which the learning rate falls."""
    return [
        before["step"]
        for before, after in pairwise(curve)
        if after["learning_rate"] < before["learning_rate"]
    ]
