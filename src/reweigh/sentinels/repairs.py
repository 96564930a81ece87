"""What to do with each label: keep it, replace it, or set its row aside; and what that is worth.

    flagged        flagged at the false-alarm rate q (flags.py)
    relabelled     the flagged rows of largest p_suggested: as many as can be, while the mean of their
                   p_suggested is 1 - q or more, and each is LIKELY at least
    set aside      the other flagged rows: wrong, but nobody knows what is right
    kept           all others

Right labels before and after are read off the sentinels: the same is done to them as to the train rows, and
their truth is known.

    before    share of right labels, by weight
    after     share of right labels among those kept (right as given) and relabelled (the suggestion right)

Where given labels of checked rows are not known, sentinels are copies: they know errors that depend on the
class alone, and more or fewer can be wrong (bounds.py). `before` then has those bounds; all the errors that are
not known may be among the labels that are kept, so `after` is moved by as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..candidates import Reals
from ..runs import Estimate
from .judgements import LabelJudgement, Sentinels

KEEP, RELABEL, SET_ASIDE = 0, 1, 2
LIKELY = 0.5
"""A suggestion that is rather wrong than right is not taken, however sure the others are."""
Actions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Policy:
    """`rate` of false alarms; a flagged row is relabelled if its p_suggested is `sure` or more."""

    rate: float
    sure: float

    @classmethod
    def of(cls, judged: LabelJudgement, rate: float) -> Policy:
        """As many relabelled as possible."""
        flagged = judged.flagged_from <= rate
        ordered = np.sort(judged.p_suggested[flagged])[::-1]
        means = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
        fits = np.flatnonzero((means >= 1 - rate) & (ordered >= LIKELY))
        return cls(rate, float(ordered[fits[-1]]) if len(fits) else np.inf)

    def actions(self, judged: LabelJudgement) -> Actions:
        """[k] KEEP, RELABEL or SET_ASIDE."""
        flagged = judged.flagged_from <= self.rate  # unknown (NaN): kept
        sure = judged.p_suggested >= self.sure
        return np.where(~flagged, KEEP, np.where(sure, RELABEL, SET_ASIDE))


@dataclass(frozen=True)
class RightLabels:
    """Shares of right labels before and after, of right ones among relabelled and flagged rows.

    `relabelled` and `alarms` are None where no sentinel is relabelled or flagged.
    """

    before: Estimate
    after: Estimate
    relabelled: Estimate | None
    alarms: Estimate | None


def right_labels(
    sentinels: Sentinels, policy: Policy, *, wrong: Estimate | None = None
) -> RightLabels:
    """As the sentinels have them; `wrong` labels in all, where pairs of labels are not known."""
    actions = policy.actions(sentinels.judged)
    right = 1 - sentinels.wrong
    hit = (sentinels.judged.suggested == sentinels.true).astype(np.float64)
    relabelled, left = _flags(actions == RELABEL), _flags(actions != SET_ASIDE)
    flagged = _flags(actions != KEEP)
    after = np.where(actions == RELABEL, hit, right)
    before, later = sentinels.share(right), sentinels.share(after * left, left)
    if wrong is not None:
        before = Estimate(1 - wrong.share, 1 - wrong.high, 1 - wrong.low)
        more, fewer = wrong.high - wrong.share, wrong.share - wrong.low
        later = Estimate(later.share, max(0.0, later.low - more), min(1.0, later.high + fewer))
    return RightLabels(
        before,
        later,
        sentinels.share(hit * relabelled, relabelled) if relabelled.any() else None,
        sentinels.share(right * flagged, flagged) if flagged.any() else None,
    )


def _flags(values: npt.NDArray[np.bool_]) -> Reals:
    return np.asarray(values, dtype=np.float64)
