"""Figures of lines, one or two per method: accuracy against a variable, accuracy during training."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..results import Json, Results
from .figures import Palette, Panel, PaperFigure, Style, name_lines
from .tables import summary_in_percent, titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MARKERS = "^Dv<>P"
DASHES: tuple[Any, ...] = (
    (0, ()), (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1)),
)  # fmt: skip
LABELS = {
    "share": "share of nines in the train set",
    "clean": "clean images",
    "rate": "labels flipped to the background class",
}
KNOWN: dict[str, tuple[Any, ...]] = {  # ours and the baseline always have the same style
    "reweigh_literal": ("ours", "o", DASHES[0], 2.4),
    "reweigh": ("ours", "D", DASHES[1]),
    "uniform": ("plain", "s", DASHES[0]),
}
VALIDATION, TRAINING = "hyper_true_accuracy", "train_accuracy"


def styles(rows: list[Json]) -> dict[str, Style]:
    """A style for each method, told apart without colour, too."""
    chosen: dict[str, Style] = {}
    others = 0
    for k, row in enumerate(rows):
        looks = KNOWN.get(row["method"])
        if looks is None:
            looks = (str(others), MARKERS[others % len(MARKERS)], DASHES[1 + k % 4])
            others += 1
        chosen[row["method"]] = Style(row["name"], *looks)
    return chosen


def against(
    results: Results, variable: str, name: str, caption: str, *, errors: bool = False
) -> PaperFigure:
    """Test accuracy, or error, of every method over the values of `variable`."""
    settings = sorted(results.settings, key=lambda s: float(s[variable]))
    ticks = titles(settings) if len(settings) > 1 else [str(settings[0][variable])]
    points = []
    for method, style in styles(results.rows).items():
        summaries = [summary_in_percent(results, method, setting, errors) for setting in settings]
        mine = [(place, s) for place, s in enumerate(summaries) if s is not None]
        if mine:
            points.append((style, mine))

    def draw(axes: Axes, palette: Palette) -> None:
        for k, (style, mine) in enumerate(points):
            # Side by side, or the bars of one method would hide those of another.
            shift = 0.05 * (k - (len(points) - 1) / 2)
            axes.errorbar(
                [place + shift for place, _ in mine],
                [s.mean for _, s in mine],
                yerr=[s.interval or 0 for _, s in mine],
                color=style.of(palette),
                marker=style.marker,
                markersize=5,
                linestyle=style.dashes,
                linewidth=style.width,
                elinewidth=1,
                label=style.name,
            )
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.35, len(ticks) - 0.65)
        axes.set(xlabel=LABELS[variable], ylabel=f"test {'error' if errors else 'accuracy'} (%)")
        if errors:
            axes.set_ylim(bottom=0)
        name_lines(axes, palette)

    spoken = "; ".join(
        f"{style.name}: " + ", ".join(f"{ticks[place]} {s.mean:.1f}" for place, s in mine)
        for style, mine in points
    )
    return PaperFigure(caption, [Panel(name, "", spoken, draw)], [style for style, _ in points])


def during_training(results: Results) -> PaperFigure:
    """Figure 7: accuracy on validation images, and on labels learnt by heart; of the first seed."""
    drawn = []
    for method, style in styles(results.rows).items():
        mine = results.of(method)
        if mine:
            curve = [p for p in results.details(mine[0])["curve"] if p["phase"] == "main"]
            drawn.append((style, curve))

    def draw(axes: Axes, palette: Palette) -> None:
        for before, after in pairwise(drawn[0][1]):
            if after["learning_rate"] < before["learning_rate"]:
                falls = before["step"]
                axes.axvline(falls, color=palette.muted, linewidth=0.8, linestyle=(0, (2, 3)))
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

    key = [style for style, _ in drawn]
    spoken = "Accuracy over training steps of " + ", ".join(style.name for style in key)
    return PaperFigure(
        "Accuracy during training. Solid: hyper-validation images, against their right labels. "
        "Dotted: train images, against the labels they were given, so that 1 means that every "
        "wrong label is known by heart. Vertical lines: the learning rate falls. To see: "
        "whether a solid line falls where its dotted one rises.",
        [Panel("training-curves", "", spoken, draw)],
        key,
    )
