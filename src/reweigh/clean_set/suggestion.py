"""Which rows to check by hand, and what checking k of them would bring.

class      of a row: the prediction of cross-fitted models (evidence.py), since its own label may
           be wrong
rows       equally many of each class: those that best represent the rest of it (coverage.py)
gains      accuracy of reweighed minus plain training for growing k, an estimate (gain.py)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core import evaluating
from ..errors import SettingError
from .committee import PART
from .coverage import covering_order
from .evidence import Evidence, as_classes, as_rows, cross_fit
from .gain import Gain, rehearse


@dataclass(frozen=True)
class Suggestion:
    """Rows to check, the most useful first.

    rows:     [k] positions in the data; the first k' of them are a balanced, diverse choice too.
    gains:    what checking the first k' would bring, for a few k'; empty if not asked for.
    evidence: the predictions of cross-fitted models for every row.
    """

    rows: Tensor
    gains: tuple[Gain, ...]
    evidence: Evidence


def suggest_clean(
    features: Any,
    labels: Any,
    k: int,
    *,
    model: nn.Module | None = None,
    gains: bool | Sequence[int] = False,
    folds: int = 5,
    repeats: int = 3,
    steps: int = 300,
    seed: int = 0,
) -> Suggestion:
    """The k rows whose checking would help most.

    features: [n, ...] and labels: [n], as they are, wrong ones included.
    model:    a trained network that turns features into better ones, such as your own without its
              last layer. It runs in eval mode without gradients and does not change.
    gains:    estimate the gain: True for k/8, k/4, k/2 and k rows, or a list of sizes. Each takes
              a few seconds.
    steps:    training steps of each estimate.

    >>> x = torch.cat([torch.randn(40, 2) - 3, torch.randn(40, 2) + 3])
    >>> y = torch.arange(80) // 40
    >>> y[:10] = 1  # wrong
    >>> rows = suggest_clean(x, y, 6).rows
    >>> int((rows < 40).sum())  # three of each cloud, whatever they are called
    3
    """
    x = as_rows(features if model is None else _embedded(model, features)).flatten(1)
    if not 1 <= k <= len(x):
        raise SettingError(f"k={k} rows of {len(x)}; expected 1 to {len(x)}")
    given, _ = as_classes(labels, len(x))
    evidence = cross_fit(x, labels, folds=folds, repeats=repeats, seed=seed)
    opinion = evidence.probabilities.argmax(1)
    rows = covering_order(x, opinion, k, seed=seed)
    sizes = _sizes(gains, k)
    curve = rehearse(x, given, opinion, rows, sizes, steps=steps, seed=seed) if sizes else ()
    return Suggestion(rows, curve, evidence)


def _sizes(gains: bool | Sequence[int], k: int) -> list[int]:
    if gains is False:
        return []
    sizes = [k // 8, k // 4, k // 2, k] if gains is True else list(gains)
    if any(not 1 <= size <= k for size in sizes if gains is not True):
        raise SettingError(f"gains={sizes}; expected sizes from 1 to k={k}")
    return sorted({size for size in sizes if size >= 1})


def _embedded(model: nn.Module, features: Any) -> Tensor:
    rows = features if isinstance(features, Tensor) else torch.tensor(np.asarray(features))
    like = next(model.parameters(), rows)
    with evaluating(model):
        parts = [model(part.to(like.device)).cpu() for part in rows.split(PART)]
    return torch.cat(parts).flatten(1)
