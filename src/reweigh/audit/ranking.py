"""From what a run remembers of each training example to a list of labels to look at.

Classes, with p the trained model's probabilities and g the given label:

    margin      p_g - max_{c != g} p_c                       in [-1, 1]
    doubt       1 - exp(-mean loss during the run)           in [0, 1]: 1 - the mean chance given to g
    of class    l_g = logit of the mean zero share of the examples given g; where l_g lies more than
                OUTLYING robust deviations over the median class, l_g - median, else 0
    second      the doubt of a plain run beside this one, where there is one and it can be told that
                no class stands out; else (1 - margin) / 2
    own         (doubt + second) / 2                         in [0, 1]
    suspicion   sigmoid(logit(own) + of class)               in [0, 1]; highest first
    suggestion  argmax p, where that is not g and p is at least CONFIDENT

Most of it comes from a *reweighed* run: its model was not taught the wrong labels it gave no weight,
so it goes on finding them hard. A plain run learns errors that have a pattern, and then finds them
easy: it is not asked where they show. Where they do not, it has learnt from every example, and the two
doubts together say more than either, above all where the task is hard. A class whose examples hardly ever help the clean ones, unlike those of all other classes, is one
that wrong labels flowed into: that speaks where the model is too weak to tell single examples apart.
A class that is merely far too common can look the same, and its examples are then ranked too high as a
whole, though still in the right order among themselves.

Regression, with r = |given - predicted| and s = 1.4826 median(r), a robust standard deviation:

    suspicion   z^2 / (9 + z^2), z = r / s;     suggestion    the prediction, where z > 3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

CONFIDENT = 0.5
OUTLYING = 3.0
FEWEST_CLASSES = 4  # of two or three, none can be told to stand out
LEAST_SPREAD = 0.3  # of class logits, so that chance in small or equal classes does not stand out


@dataclass(frozen=True, eq=False)
class Ranking:
    """Examples by falling suspicion; equal ones in the order of the data.

    order         [n] positions in the train part
    suspicion     [n] in that order
    suggested     [n] in that order: a class, or -1 where there is no confident suggestion;
                  a number, or NaN, in a regression
    probability   [n] in that order: of the suggestion (or of the given label); NaN in a regression
    """

    order: Places
    suspicion: Reals
    suggested: npt.NDArray[Any]
    probability: Reals

    def __len__(self) -> int:
        return len(self.order)


def rank_classes(
    given: Places,
    *,
    mean_loss: Reals,
    zero_share: Reals,
    p_given: Reals,
    rival: Places,
    p_rival: Reals,
    plain_loss: Reals | None = None,
) -> Ranking:
    """Rank labels that are classes; `rival` is the most probable class but the given one, all [n].

    plain_loss: the mean loss of each in a plain run beside this one.
    An example never seen in training has NaN for mean loss and zero share; its margin alone speaks.
    """
    margin = p_given - p_rival
    from_margin = (1 - margin) / 2
    of_class = _of_class(given, zero_share)
    alike = len(np.unique(given)) >= FEWEST_CLASSES and not of_class.any()
    asked = plain_loss if alike else None
    second = from_margin if asked is None else _doubt(asked, from_margin)
    own = (_doubt(mean_loss, from_margin) + second) / 2
    suspicion = 1 / (1 + np.exp(-_logit(own) - of_class[given]))
    confident = (margin < 0) & (p_rival >= CONFIDENT)
    suggested = np.where(confident, rival, -1)
    return _ordered(suspicion, suggested, np.where(confident, p_rival, p_given))


def _doubt(mean_loss: Reals, otherwise: Reals) -> Reals:
    doubt = 1 - np.exp(-np.maximum(mean_loss, 0))
    return np.where(np.isnan(doubt), otherwise, doubt)


def _of_class(given: Places, zero_share: Reals) -> Reals:
    """What being given each class adds to the logit; 0 for all but classes that stand out."""
    known = ~np.isnan(zero_share)
    counts = np.bincount(given[known], minlength=given.max() + 1)
    there = counts > 0
    added = np.zeros(len(counts))
    if there.sum() < FEWEST_CLASSES:
        return added
    sums = np.bincount(given[known], weights=zero_share[known], minlength=len(counts))
    logits = _logit(sums[there] / counts[there])
    excess = logits - np.median(logits)
    spread = max(1.4826 * float(np.median(np.abs(excess))), LEAST_SPREAD)
    added[there] = np.where(excess > OUTLYING * spread, excess, 0.0)
    return added


def _logit(share: Reals) -> Reals:
    bounded = np.clip(share, 1e-6, 1 - 1e-6)
    found: Reals = np.log(bounded / (1 - bounded))
    return found


def rank_numbers(given: Reals, *, predicted: Reals) -> Ranking:
    """Rank targets of a regression, [n]."""
    residual = np.abs(given - predicted)
    spread = 1.4826 * float(np.median(residual))
    z = residual / (spread if spread > 0 else 1.0)
    suggested = np.where(z > 3, predicted, np.nan)
    return _ordered(z**2 / (9 + z**2), suggested, np.full(len(z), np.nan))


def _ordered(suspicion: Reals, suggested: npt.NDArray[Any], probability: Reals) -> Ranking:
    order = np.argsort(-suspicion, kind="stable")
    return Ranking(order, suspicion[order], suggested[order], probability[order])
