"""What the data says about its own labels: cross-fitted predictions of several small models.

The rows are cut into folds; for each fold a fresh model is trained on the others, for few steps (a
network learns what is common before it memorises what is not), and asked about the fold. Repeated
with other cuts and other starting weights, all classes drawn equally often (so that a label which
absorbs the errors of all others gains nothing by it), this gives for row i with given label y_i

    margin_i     mean over repeats of  p(y_i) - max_{c != y_i} p(c)          in [-1, 1]
    agreement_i  share of repeats in which  argmax_c p(c) = y_i              in [0, 1]

No model was trained on the rows it speaks about, so a label cannot vouch for itself.

Cost: folds x repeats short trainings. Blind to errors that follow a pattern in the features: models
learn those as if they were true, and agree on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..errors import BatchError, SettingError
from .committee import ModelFactory, train_members

BATCH = 64


@dataclass(frozen=True)
class Evidence:
    """What cross-fitted models think of n labelled rows.

    probabilities: [n, classes], averaged over the repeats.
    margins:       [n], mean of p(given) - max p(other).
    agreement:     [n], share of repeats that would have given the same label.
    """

    probabilities: Tensor
    margins: Tensor
    agreement: Tensor


def as_rows(features: Any) -> Tensor:
    """Features as a float tensor [n, ...] on the CPU, each column of mean 0 and variance 1."""
    # A copy: the user's array may be read-only, which PyTorch warns of.
    x = features if isinstance(features, Tensor) else torch.tensor(np.asarray(features))
    x = x.detach().cpu().float()
    if x.ndim < 2 or len(x) == 0:
        raise BatchError(
            f"features have shape {tuple(x.shape)}; expected one row per example: [n, d] or [n, ...]"
        )
    if not torch.isfinite(x).all():
        raise BatchError("features hold NaN or infinity; expected numbers: fill or drop those rows")
    std = x.std(0, correction=0)
    return (x - x.mean(0)) / torch.where(std > 0, std, torch.ones_like(std))


def as_classes(labels: Any, n: int) -> tuple[Tensor, int]:
    """Labels of any sort as class numbers [n] from 0, in the order of their sorted values."""
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (n,):
        raise BatchError(f"labels have shape {values.shape} for {n} rows; expected ({n},)")
    names, numbers = np.unique(values, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), len(names)


def cross_fit(
    features: Any,
    labels: Any,
    *,
    model: ModelFactory | None = None,
    folds: int = 5,
    repeats: int = 3,
    steps: int = 150,
    seed: int = 0,
) -> Evidence:
    """Ask models about rows they were not trained on.

    features: [n, ...], array or tensor; standardised here. labels: [n], numbers or strings.
    model:    makes a fresh network for such rows; a small perceptron by default.
    steps:    of Adam on batches of 64: few on purpose.

    >>> x = torch.cat([torch.randn(30, 2) - 3, torch.randn(30, 2) + 3])
    >>> y = torch.arange(60) // 30
    >>> y[0] = 1
    >>> int(cross_fit(x, y).margins.argmin())
    0
    """
    if folds < 2 or repeats < 1 or steps < 1:
        raise SettingError(
            f"folds={folds}, repeats={repeats}, steps={steps}; expected at least 2, 1 and 1"
        )
    x = as_rows(features)
    y, classes = as_classes(labels, len(x))
    n, folds = len(y), min(folds, len(y))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        cuts = [torch.randperm(n) % folds for _ in range(repeats)]
        held = [cut == fold for cut in cuts for fold in range(folds)]
        draws = torch.stack([_draws(y, ~rows, steps) for rows in held])
        members = train_members(x, y, draws, classes, model)
    given = functional.one_hot(y, classes).bool()
    answers = torch.empty(repeats, n, classes)
    for number, (rows, member) in enumerate(zip(held, members, strict=True)):
        answers[number // folds, rows] = member(x[rows])
    own = answers[:, given]
    rival = answers.masked_fill(given, 0).max(2).values
    return Evidence(
        probabilities=answers.mean(0),
        margins=(own - rival).mean(0),
        agreement=(own > rival).float().mean(0),
    )


def _draws(y: Tensor, kept: Tensor, steps: int) -> Tensor:
    """Rows [steps, batch] among those kept, every class equally often; any row if none is kept."""
    kept = kept if kept.any() else ~kept
    counts = torch.bincount(y[kept], minlength=int(y.max()) + 1)
    shares = torch.where(kept, 1 / counts.clamp(min=1)[y].double(), 0.0)
    batch = min(BATCH, len(y))
    return torch.multinomial(shares, steps * batch, replacement=True).view(steps, batch)
