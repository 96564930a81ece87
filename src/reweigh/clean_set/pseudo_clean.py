"""A substitute for a clean set, chosen from the noisy data by margin and agreement.

    eligible    rows whose label every cross-fitted model predicts (agreement 1)
    chosen      equally many of each class: the eligible rows with the largest margins

**Errors with a pattern stay invisible.** Models learn whatever the data says often enough: if most
"wolf" labels on snow are wrong, the chosen wolves stand on snow. Use this if labels are wrong at
random, or for a first try. A few rows checked by a person are worth more (`suggest_clean` says which
rows to check).
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ReweighWarning, SettingError
from .committee import ModelFactory
from .evidence import Evidence, as_classes, cross_fit


@dataclass(frozen=True)
class PseudoClean:
    """Rows whose labels look right to models trained on the other rows.

    rows:     [k] positions in the data, class by class, the surest first.
    evidence: the predictions for every row, for a choice of your own.
    """

    rows: Tensor
    evidence: Evidence


def pseudo_clean(
    features: Any,
    labels: Any,
    *,
    per_class: int = 10,
    model: ModelFactory | None = None,
    folds: int = 5,
    repeats: int = 3,
    steps: int = 150,
    seed: int = 0,
) -> PseudoClean:
    """Choose `per_class` rows of each class whose labels look right.

    Errors with a pattern stay invisible (see the module). If a class has fewer rows than asked for,
    all are taken. Rows that some model disagrees with are taken only if a class has too few others,
    with a warning.

    features, labels, model, folds, repeats, steps, seed: as in `cross_fit`.

    >>> x = torch.cat([torch.randn(30, 2) - 3, torch.randn(30, 2) + 3])
    >>> y = torch.arange(60) // 30
    >>> y[:5] = 1  # wrong
    >>> rows = pseudo_clean(x, y, per_class=4).rows
    >>> y[rows].tolist(), int(rows.min()) >= 5
    ([0, 0, 0, 0, 1, 1, 1, 1], True)
    """
    if per_class < 1:
        raise SettingError(f"per_class={per_class}; expected 1 or more")
    evidence = cross_fit(
        features, labels, model=model, folds=folds, repeats=repeats, steps=steps, seed=seed
    )
    y, classes = as_classes(labels, len(evidence.margins))
    # Full agreement first, then the margin. Margins are in [-1, 1], so one number orders both.
    rank = evidence.margins + 3 * (evidence.agreement == 1)
    rows = torch.cat([_best(rank, (y == c).nonzero().flatten(), per_class) for c in range(classes)])
    doubtful = y[rows[evidence.agreement[rows] < 1]].unique()
    if len(doubtful):
        warnings.warn(
            f"{len(doubtful)} of {classes} classes have fewer than {per_class} rows whose label all "
            f"models agree on; doubtful rows were taken. Ask for fewer per class, or check rows by "
            f"hand: suggest_clean says which",
            ReweighWarning,
            stacklevel=2,
        )
    return PseudoClean(rows, evidence)


def _best(rank: Tensor, members: Tensor, count: int) -> Tensor:
    return members[rank[members].argsort(descending=True, stable=True)[:count]]
