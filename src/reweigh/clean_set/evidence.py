"""What the data says about its own labels: cross-fitted predictions of several small models.

    margin_i     mean over repeats of  p(y_i) - max_{c != y_i} p(c)          in [-1, 1]
    agreement_i  share of repeats in which  argmax_c p(c) = y_i              in [0, 1]

y_i is the given label of row i. The rows are cut into folds. For each fold a fresh model is trained
on the other folds and predicts this one. So no model has seen the labels it is compared with, and a
wrong label cannot support itself. Training is short, because a network learns what is common before
it memorises single rows. All classes are drawn equally often, so that a label that absorbs the errors
of all others has no advantage. Repeats use other folds and other initial weights.

Cost: folds x repeats short trainings. Pitfall: errors that follow a pattern in the features stay
invisible. Models learn such errors as if they were true, and agree on them.
"""

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
    """What cross-fitted models predict for n labelled rows.

    probabilities: [n, classes], averaged over the repeats.
    margins:       [n], mean of p(given) - max p(other).
    agreement:     [n], share of repeats that predict the given label.
    """

    probabilities: Tensor
    margins: Tensor
    agreement: Tensor


def as_rows(features: Any) -> Tensor:
    """Features as a float tensor [n, ...] on the CPU, each column of mean 0 and variance 1."""
    # A copy: the user's array may be read-only, and PyTorch warns about those.
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
    """Labels of any type as class numbers [n] from 0 in sorted order, and the number of classes."""
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
    """Predict every row by models that were not trained on it.

    features: [n, ...], array or tensor; standardised here. labels: [n], numbers or strings.
    model:    makes a fresh network for such rows; a small perceptron by default.
    steps:    steps of Adam on batches of 64; few on purpose, see above.

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
    p = torch.empty(repeats, n, classes)
    for number, (rows, member) in enumerate(zip(held, members, strict=True)):
        p[number // folds, rows] = member(x[rows])
    own = p[:, given]
    rival = p.masked_fill(given, 0).max(2).values
    return Evidence(
        probabilities=p.mean(0),
        margins=(own - rival).mean(0),
        agreement=(own > rival).float().mean(0),
    )


def _draws(y: Tensor, kept: Tensor, steps: int) -> Tensor:
    """Rows [steps, batch] drawn from `kept`, every class equally often; from all if none is kept."""
    kept = kept if kept.any() else ~kept
    counts = torch.bincount(y[kept], minlength=int(y.max()) + 1)
    shares = torch.where(kept, 1 / counts.clamp(min=1)[y].double(), 0.0)
    batch = min(BATCH, len(y))
    return torch.multinomial(shares, steps * batch, replacement=True).view(steps, batch)
