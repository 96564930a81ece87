"""The paper's figures, drawn from results: which one an experiment gets, histograms, matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..results import Json, Results
from .figures import Draw, Palette, Panel, PaperFigure
from .lines import against, during_training
from .tables import NOISES, titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BINS = 16
DRAWN = ("uniform", "reweigh_literal", "reweigh")  # whose matrices stand beside the annotators'
TOP = 4.0  # times an equal share; what is beyond stands in the last bar


def figures(results: Results) -> list[PaperFigure]:
    """What the experiment's kind asks for; none for a table."""
    shows = results.about["shows"]
    return [] if shows == "table" else [KINDS[shows](results)]


def _weights(results: Results) -> PaperFigure:
    """Figure 3."""
    panels = [
        Panel(
            f"weights-{kind}",
            title,
            f"Histogram of the weights of right and of wrong labels. {title}.",
            _histogram(results, kind),
            (4.2, 3.0),
        )
        for kind, title in (("random", "A random batch"), ("classes", "Batches of one class"))
    ]
    return PaperFigure(
        "How much weight right and wrong labels get on images the model has not been trained "
        "on, after half of the training; 1 is an equal share, and the first bar holds those "
        "without any weight. Left: hyper-validation images with their noise. Right: images of "
        "one class, some relabelled as background, over all classes but that one. To see: "
        "whether wrong labels are in the first bar and right ones beyond it.",
        panels,
    )


def _histogram(results: Results, kind: str) -> Draw:
    """Shares of right and wrong labels by weight, in units of an equal share, over all seeds."""
    sides: dict[str, list[float]] = {"right": [], "wrong": []}
    for line in results.of(results.rows[0]["method"]):
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
        ticks = range(1, int(TOP) + 1)
        axes.set_xticks([-step / 2, *ticks], ["0", *map(str, ticks[:-1]), f"{ticks[-1]}+"])
        axes.set_xlim(-step * 1.2, TOP + 0.05)
        axes.set(xlabel="weight, 1 is an equal share", ylabel="share of its kind (%)")
        axes.legend(frameon=False, loc="upper right")
        axes.grid(visible=False, axis="x")

    return draw


def _confusions(results: Results) -> PaperFigure:
    """Figure 6."""
    panels = [
        Panel(
            f"confusion-{setting['noise']}-{row['method']}",
            f"{row['name']}, flipped to {_flipped_to(results, row['method'], setting)}",
            f"Confusion matrix of {row['name']} under {setting['noise']} flips.",
            _matrix(results, row["method"], setting),
            (3.6, 3.6),
        )
        for setting in results.settings
        for row in results.rows
        if results.of(row["method"], setting)
    ]
    return PaperFigure(
        "What test images of each class (rows) are taken for (columns); the darker, the larger "
        "the share of the row. To see: how much is left off the diagonal, and under flips to "
        "one class, in the column of that class.",
        panels,
    )


def _flipped_to(results: Results, method: str, setting: Json) -> str:
    """In words: the name of the background class if there is one."""
    if setting["noise"] != "background":
        return NOISES[setting["noise"]]
    line = results.of(method, setting)[0]
    setup = next(s for s in results.about["setups"] if s["setting"] == setting)
    classes = setup["backgrounds"] or [setup["recipe"]["background"]]
    return f"“{results.details(line)['classes'][classes[line['seed'] % len(classes)]]}”"


def _people_and_networks(results: Results) -> PaperFigure:
    """What those who gave the labels took for what, and what networks take after training on them."""
    panels = []
    for setting, title in zip(results.settings, titles(results.settings), strict=True):
        shown = [row for row in results.rows if results.of(row["method"], setting)]
        name = "-".join(str(value) for value in setting.values())
        for row in shown[:1]:
            panels.append(
                Panel(
                    f"given-{name}",
                    " ".join(["The labels as given", title]).strip(),
                    "Confusion matrix of the given labels against the true ones.",
                    _matrix(results, row["method"], setting, "given", "called"),
                    (3.6, 3.6),
                )
            )
        for row in shown:
            if row["method"] in DRAWN:
                panels.append(
                    Panel(
                        f"taken-{name}-{row['method']}",
                        " ".join([row["name"], title]).strip(),
                        f"Confusion matrix of {row['name']} on the test images.",
                        _matrix(results, row["method"], setting),
                        (3.6, 3.6),
                    )
                )
    return PaperFigure(
        "What train images of each class (rows) were called by those who labelled them, and what "
        "networks trained on those labels take test images for (columns); the darker, the larger the "
        "share of the row. To see: whether a network has learnt the habits of the annotators, such as "
        "cats for dogs, or only those that are hard to tell apart.",
        panels,
    )


def _matrix(
    results: Results,
    method: str,
    setting: Json,
    entry: str = "confusion",
    columns: str = "taken for",
) -> Draw:
    """Squares of one colour, the darker the larger the share; rows are the true classes."""
    details = results.details(results.of(method, setting)[0])
    counts = np.array(details[entry], dtype=float)
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
        axes.set(xlim=(0, n), ylim=(n, 0), xlabel=columns, ylabel="true class", aspect="equal")
        axes.grid(visible=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)

    return draw


KINDS: dict[str, Callable[[Results], PaperFigure]] = {
    "imbalance": partial(
        against,
        variable="share",
        name="error-against-imbalance",
        caption="Test error against the share of nines in the train set; bars are 95% intervals of "
        "the mean where there are several seeds. To see: which lines climb as fours become rare.",
        errors=True,
    ),
    "weights": _weights,
    "clean-size": partial(
        against,
        variable="clean",
        name="accuracy-against-clean-size",
        caption="Test accuracy against the number of clean images. To see: what few clean images "
        "cost reweighing, and what they cost fine-tuning on the same images.",
    ),
    "noise-level": partial(
        against,
        variable="rate",
        name="accuracy-against-noise",
        caption="Test accuracy against the share of flipped labels. To see: how fast each line falls.",
    ),
    "confusion": _confusions,
    "human": _people_and_networks,
    "curves": during_training,
}
