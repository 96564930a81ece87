"""The paper's figures, drawn from results: which one an experiment gets, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..results import Results
from . import confusions, curves, lines, weights
from .figures import Draw, embedded, saved


@dataclass(frozen=True)
class Panel:
    """One drawing: `text` says what it shows to those who cannot see it."""

    name: str
    title: str
    text: str
    draw: Draw
    size: tuple[float, float] = (4.2, 2.9)

    @property
    def svg(self) -> str:
        """For the page."""
        width, height = self.size
        return embedded(self.name, self.draw, width=width, height=height)

    def save(self, folder: Path) -> None:
        """As PNG and PDF."""
        width, height = self.size
        saved(folder, self.name, self.draw, width=width, height=height + 0.5)


@dataclass(frozen=True)
class Figure:
    """Panels side by side; `key` are names with the style of their line, for the legend."""

    caption: str
    panels: list[Panel]
    key: list[lines.Style] = field(default_factory=list)


Draws = Callable[[Results], list[Figure]]


def figures(results: Results) -> list[Figure]:
    """What the experiment's kind asks for; none for a table."""
    return KINDS[results.about["shows"]](results)


def _against(variable: str, name: str, caption: str, *, errors: bool = False) -> Draws:
    """One line per method over the values of a variable of the experiment."""

    def draw(results: Results) -> list[Figure]:
        drawn = lines.against(results, variable, errors=errors)
        return [Figure(caption, [Panel(name, "", _spoken(drawn), drawn.draw)], drawn.styles)]

    return draw


def _weights(results: Results) -> list[Figure]:
    panels = [
        Panel(
            f"weights-{kind}",
            title,
            f"Histogram of the weights of right and of wrong labels. {title}.",
            weights.histogram(results, kind),
            (4.2, 3.0),
        )
        for kind, title in (("random", "A random batch"), ("classes", "Batches of one class"))
    ]
    return [
        Figure(
            "How much weight right and wrong labels get on images the model has not been trained "
            "on, after half of the training; 1 is an equal share, and the first bar holds those "
            "without any weight. Left: hyper-validation images with their noise. Right: images of "
            "one class, some relabelled as background, over all classes but that one. To see: "
            "whether wrong labels are in the first bar and right ones beyond it.",
            panels,
        )
    ]


def _confusion(results: Results) -> list[Figure]:
    panels = [
        Panel(
            f"confusion-{setting['noise']}-{row['method']}",
            f"{row['name']}, flipped to {confusions.target(results, row['method'], setting)}",
            f"Confusion matrix of {row['name']} under {setting['noise']} flips.",
            confusions.matrix(results, row["method"], setting),
            (3.6, 3.6),
        )
        for setting in results.settings
        for row in results.rows
        if results.of(row["method"], setting)
    ]
    return [
        Figure(
            "What test images of each class (rows) are taken for (columns); the darker, the larger "
            "the share of the row. To see: how much is left off the diagonal, and under flips to "
            "one class, in the column of that class.",
            panels,
        )
    ]


def _curves(results: Results) -> list[Figure]:
    drawn = curves.during_training(results)
    return [
        Figure(
            "Accuracy during training. Solid: hyper-validation images, against their right labels. "
            "Dotted: train images, against the labels they were given, so that 1 means that every "
            "wrong label is known by heart. Vertical lines: the learning rate falls. To see: "
            "whether a solid line falls where its dotted one rises.",
            [
                Panel(
                    "training-curves",
                    "",
                    "Accuracy over training steps of "
                    + ", ".join(style.name for style in drawn.styles),
                    drawn.draw,
                )
            ],
            drawn.styles,
        )
    ]


def _spoken(drawn: lines.LinePlot) -> str:
    """The figure's numbers as a sentence."""
    return "; ".join(
        f"{style.name}: " + ", ".join(f"{x} {s.mean:.1f}" for x, s in points)
        for style, points in drawn.points
    )


KINDS: dict[str, Draws] = {
    "table": lambda results: [],
    "imbalance": _against(
        "share",
        "error-against-imbalance",
        "Test error against the share of nines in the train set; bars are 95% intervals of the "
        "mean where there are several seeds. To see: which lines climb as fours become rare.",
        errors=True,
    ),
    "weights": _weights,
    "clean-size": _against(
        "clean",
        "accuracy-against-clean-size",
        "Test accuracy against the number of clean images. To see: what few clean images "
        "cost reweighing, and what they cost fine-tuning on the same images.",
    ),
    "noise-level": _against(
        "rate",
        "accuracy-against-noise",
        "Test accuracy against the share of flipped labels. To see: how fast each line falls.",
    ),
    "confusion": _confusion,
    "curves": _curves,
}
