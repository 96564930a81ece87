"""From the ledger and the model of a run to a ranking of labels, the most suspicious first.

Classes, with p the trained model's probabilities and g the given label:

    margin      p_g - max_{c != g} p_c                       in [-1, 1]
    doubt       1 - exp(-mean loss during the run)           in [0, 1]: 1 - mean probability of g
    of class    l_g = logit of the mean zero share of the examples given g. l_g - median over the
                classes, if that is more than OUTLYING robust deviations; else 0
    second      the doubt of a plain run on the same data, if there is one, there are at least
                FEWEST_CLASSES classes, and none of them stands out; else (1 - margin) / 2
    own         (doubt + second) / 2                         in [0, 1]
    suspicion   sigmoid(logit(own) + of class)               in [0, 1]; highest first
    suggestion  argmax p, if that is not g and p is at least CONFIDENT

`doubt` comes from a reweighed run. Its model did not learn the wrong labels that got no weight, so
their losses stay high.

`second`: a plain run learns errors that follow a pattern, and their losses become low. So it is used
only if no class stands out. It has then learnt from every example, and the mean of the two doubts is
better than either, above all on hard tasks.

The ledger's `against_share` has no part in it: it says what the mean loss says, more coarsely.

`of class`: if the examples of one class hardly ever help the clean examples, unlike those of all
other classes, many labels of that class are wrong. This helps if the model is too weak to tell
single examples apart. Pitfall: a class that is far too common can look the same. All its examples
are then ranked too high, though in the right order among themselves.

Regression, with r = |given - predicted| and s = 1.4826 median(r), a robust standard deviation:

    suspicion   z^2 / (9 + z^2), z = r / s;     suggestion    the prediction, where z > 3
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

CONFIDENT = 0.5
OUTLYING = 3.0
FEWEST_CLASSES = 4  # among two or three classes, none can be said to stand out
LEAST_SPREAD = 0.3  # of the class logits: small or similar classes do not stand out by chance


@dataclass(frozen=True, eq=False)
class Ranking:
    """Examples by falling suspicion; equal ones in the order of the data.

    order         [n] positions in the train part
    suspicion     [n] in that order
    suggested     [n] in that order: a class, or -1 if there is no confident suggestion;
                  in a regression a number, or NaN
    probability   [n] in that order: of the suggestion, or of the given label if there is none; NaN
                  in a regression
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
    """Rank labels that are classes; all arguments are [n].

    rival:      the most probable class except the given one, with probability `p_rival`.
    plain_loss: the mean loss of each example in a plain run on the same data.

    An example never seen in training has NaN for mean loss and zero share; its margin alone decides.
    """
    margin = p_given - p_rival
    from_margin = (1 - margin) / 2
    of_class = _of_class(given, zero_share)
    none_stands_out = len(np.unique(given)) >= FEWEST_CLASSES and not of_class.any()
    second = from_margin
    if plain_loss is not None and none_stands_out:
        second = _doubt(plain_loss, from_margin)
    own = (_doubt(mean_loss, from_margin) + second) / 2
    suspicion = 1 / (1 + np.exp(-_logit(own) - of_class[given]))
    confident = (margin < 0) & (p_rival >= CONFIDENT)
    suggested = np.where(confident, rival, -1)
    return _ordered(suspicion, suggested, np.where(confident, p_rival, p_given))


def _doubt(mean_loss: Reals, otherwise: Reals) -> Reals:
    doubt = 1 - np.exp(-np.maximum(mean_loss, 0))
    return np.where(np.isnan(doubt), otherwise, doubt)


def _of_class(given: Places, zero_share: Reals) -> Reals:
    """[classes] what the given class adds to the logit; 0 unless the class stands out."""
    known = ~np.isnan(zero_share)
    counts = np.bincount(given[known], minlength=given.max() + 1)
    present = counts > 0
    added = np.zeros(len(counts))
    if present.sum() < FEWEST_CLASSES:
        return added
    sums = np.bincount(given[known], weights=zero_share[known], minlength=len(counts))
    logits = _logit(sums[present] / counts[present])
    excess = logits - np.median(logits)
    spread = max(1.4826 * float(np.median(np.abs(excess))), LEAST_SPREAD)
    added[present] = np.where(excess > OUTLYING * spread, excess, 0.0)
    return added


def _logit(share: Reals) -> Reals:
    bounded = np.clip(share, 1e-6, 1 - 1e-6)
    logit: Reals = np.log(bounded / (1 - bounded))
    return logit


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
