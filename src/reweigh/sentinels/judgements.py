"""What is said of labels: of train rows, of sentinels (rows whose truth is known), and of all together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals
from ..rng import Draws
from ..runs import Estimate
from .joint import Joint
from .witnesses import Testimony


@dataclass(frozen=True, eq=False)
class LabelJudgement:
    """What is said of rows and their labels, [k] each.

    p_wrong        probability that the label is wrong
    suggested      the likeliest other class; p_suggested its probability
    flagged_from   the smallest false-alarm rate at which the label is flagged
    """

    p_wrong: Reals
    suggested: Places
    p_suggested: Reals
    flagged_from: Reals


@dataclass(frozen=True, eq=False)
class Sentinels:
    """Rows whose truth is known, [s] each: `row` of the checked ones, its class, a label, a weight.

    Of each checked row of class y, the weights under all labels sum to (train rows that are y) / m_y.
    draws [b, s] are the weights in bootstraps of the checked rows.
    """

    row: Places
    true: Places
    label: Places
    weight: Reals
    judged: LabelJudgement
    draws: Reals

    def share(self, values: Reals, among: Reals | None = None) -> Estimate:
        """sum of values / sum of `among` (all) over sentinels by weight, with a 95% interval.

        To each bootstrap half a checked row is added on either side, as in Jeffreys' interval: three
        errors seen, or none, do not make an interval narrow. The train rows are a draw as well: with m checked
        rows for n others the spread is sqrt(1 + m / n) as wide.
        """
        from scipy.stats import gamma

        among = np.ones(len(values)) if among is None else among
        uniform = Draws(0, "half a row on either side").uniform(2 * len(self.draws))
        row = float(self.weight.sum()) / max(len(np.unique(self.row)), 1)
        more, less = row * gamma.ppf(np.clip(uniform, 1e-9, 1 - 1e-9), 0.5).reshape(2, -1)
        each = (self.draws @ values + more) / (self.draws @ among + more + less)
        found = float(self.weight @ values / max(float(self.weight @ among), 1e-9))
        wider = np.sqrt(1 + 1 / row) if row > 0 else 1.0
        middle = each.mean()
        low, high = np.clip(middle + wider * (np.quantile(each, [0.025, 0.975]) - middle), 0, 1)
        return Estimate(found, min(float(low), found), max(float(high), found))

    @property
    def wrong(self) -> Reals:
        """1 where the label is wrong."""
        return np.asarray(self.label != self.true, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Of the train rows, of the sentinels, and of all of them together.

    right_share    the share of right labels that flags reckon with
    by_pairs       whether given labels of checked rows were known
    """

    train: LabelJudgement
    sentinels: Sentinels
    joint: Joint
    right_share: float
    by_pairs: bool
    testimony: Testimony
