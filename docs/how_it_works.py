"""Draw docs/how-it-works.svg: one reweighed step of a model small enough to see all of.

python docs/how_it_works.py

A logistic regression with two weights on made-up points in the plane, three in ten labels wrong: a
gradient is an arrow. Scores and weights are the library's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import reweigh

PICTURE = Path(__file__).with_name("how-it-works.svg")
COUNTED, IGNORED, GREY = "#2f7fd1", "#d1632f", "#808080"  # readable on white and on black


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Logistic loss of labels -1 and +1."""
    inputs, labels = batch
    return F.softplus(-labels * model(inputs).squeeze(1))


def points(count: int, wrong: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Two clouds with labels, the first `wrong` of them flipped; and which those are."""
    truth = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)
    inputs = truth[:, None] * torch.tensor([1.1, 0.7]) + 0.75 * torch.randn(count, 2)
    flipped = torch.arange(count) < wrong
    return (inputs, torch.where(flipped, -truth, truth)), flipped


def main() -> None:
    """Weigh one batch and draw it."""
    import matplotlib
    from matplotlib.figure import Figure

    torch.manual_seed(4)
    model = nn.Linear(2, 1, bias=False)
    train, flipped = points(40, wrong=12)
    clean, _ = points(6, wrong=0)
    step = reweigh.Reweighter(model, loss)(train, clean)
    downhill = -gradients(model, train)
    towards = -gradients(model, clean).mean(0)

    style = {
        "svg.hashsalt": "how", "font.size": 10, "text.color": GREY, "axes.titlecolor": GREY,
        "axes.edgecolor": GREY, "legend.labelcolor": GREY,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 4.1), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_points(left, train, clean, step.weights, flipped)
        draw_gradients(right, downhill, towards, step.weights)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(PICTURE, transparent=True, metadata={"Date": None})


def gradients(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The gradient of every example's loss, [n, 2]."""
    weight = next(model.parameters())
    rows = [
        torch.autograd.grad(value, weight, retain_graph=True)[0] for value in loss(model, batch)
    ]
    return torch.cat(rows)


def draw_points(axes: Any, train: Any, clean: Any, weights: Tensor, flipped: Tensor) -> None:
    """The batch: the larger a point, the more it counts."""
    (inputs, labels), counted = train, weights > 0
    for sign, marker in ((1, "o"), (-1, "s")):
        kept, left_out = (labels == sign) & counted, (labels == sign) & ~counted
        axes.scatter(*inputs[kept].T, 20 + 2500 * weights[kept], COUNTED, marker=marker, alpha=0.8,
                     linewidths=0, label="has weight" if sign == 1 else None)  # fmt: skip
        axes.scatter(*inputs[left_out].T, 20, IGNORED, marker=marker, linewidths=0,
                     label="weight zero" if sign == 1 else None)  # fmt: skip
        known = clean[1] == sign
        axes.scatter(*clean[0][known].T, 45, "none", marker=marker, edgecolors=GREY, linewidths=1.6,
                     label="clean" if sign == 1 else None)  # fmt: skip
    axes.scatter(*inputs[flipped].T, 60, IGNORED, marker="x", linewidths=1, label="label is wrong")
    axes.set(title="a batch: circles are called A, squares B", xticks=[], yticks=[])


def draw_gradients(axes: Any, downhill: Tensor, towards: Tensor, weights: Tensor) -> None:
    """Where each example would pull the two weights, and where the clean batch would."""
    reach = float(downhill.norm(dim=1).max())
    for arrow, weight in zip(downhill, weights, strict=True):
        axes.plot([0, arrow[0]], [0, arrow[1]], color=COUNTED if weight > 0 else IGNORED,
                  linewidth=1.2, alpha=0.8)  # fmt: skip
    across = torch.tensor([-towards[1], towards[0]]) / towards.norm() * reach
    axes.plot([-across[0], across[0]], [-across[1], across[1]], ":", color=GREY)
    axes.annotate(
        "", towards.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 3}
    )
    axes.text(0.97, 0.04, "grey: the clean batch", ha="right", transform=axes.transAxes)
    axes.set(title="where each would pull the two parameters", xticks=[], yticks=[])
    axes.set_aspect("equal")


if __name__ == "__main__":
    main()
