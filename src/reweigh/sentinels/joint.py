"""How often true y is called g, over all train rows, and how many labels are wrong; with intervals.

    J[y, g]    the share of all rows that are y and called g; sums to one
    a_g        mean of p(x) over the train rows called g
    M_y        mean of p(x) over the checked rows of class y

If errors depend on the true class alone, rows called g are a mixture of the classes: a_g = sum_y r_g(y) M_y.
This holds whether or not p is calibrated. Few checked rows make M uncertain, so the mixture is kept near a
prior: between what expectation maximisation finds from p itself (candidates/posterior.py) and "labels are right":

    prior_g = u em_g + (1 - u) [y = g]
    r_g     = argmin  |a_g - sum_y r(y) M_y|^2 + pull / m_y (r(y) - prior_g(y))^2 summed over y,   r >= 0, sum 1

Where the given labels of the checked rows are known, too (`with_pairs`), counting is better than that: it holds
for errors of every kind, if the checked rows were drawn at random. The share of wrong labels is then that
of the checked rows, and errors are spread over pairs as theirs are; the estimate above is added to both, as
PRIOR_ROWS rows and as PRIOR_ERRORS errors. Right labels are the rest of the rows called g.

Intervals: where pairs are known, the Bayesian bootstrap. Where they are not, errors may depend on more than
the class, and the mixture can be far off: the interval is then what is known whatever errors depend on
(bounds.py), and the estimate is moved into it.

The bootstrap: checked rows of a class get weights from a flat Dirichlet distribution,
u is drawn from 0 to 1 and pull from PULL / 100 to PULL, M and r are found anew DRAWS times. Train rows are many,
and taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals, settle
from ..rng import Draws
from ..runs import Estimate
from .bounds import Bounds

PULL = 0.5
DRAWS, FEWER = 200, 40
"""Bootstraps; fewer where there are more than MANY classes."""
MANY = 20
PRIOR_ROWS, PRIOR_ERRORS = 4.0, 30.0


@dataclass(frozen=True, eq=False)
class Joint:
    """shares [classes, classes] are J[y, g]; draws [b, classes, classes] the same from bootstraps.

    row_weights    [b, m] the bootstraps' weights of the checked rows, which sum to m; those of each class
                   to its size, unless given labels are known
    bounds         of the errors, whatever they depend on; None where given labels are known
    """

    shares: Reals
    draws: Reals
    row_weights: Reals
    bounds: Bounds | None = None

    @property
    def wrong(self) -> float:
        """The share of wrong labels."""
        return float(1 - np.trace(self.shares))

    def errors(self, given: int | None = None, true: int | None = None) -> Estimate:
        """The share of all rows that are wrong; those called `given`; those of one pair."""
        found = float(self._wrong(self.shares[None], given, true)[0])
        if self.bounds is not None:
            low, high = self.bounds.errors(given, true)
            return Estimate(min(max(found, low), high), low, high)
        low, high = np.quantile(self._wrong(self.draws, given, true), [0.025, 0.975])
        return Estimate(found, min(float(low), found), max(float(high), found))

    @staticmethod
    def _wrong(shares: Reals, given: int | None, true: int | None) -> Reals:
        if given is None:
            total: Reals = 1 - np.trace(shares, axis1=1, axis2=2)
            return total
        if true is not None:
            pair: Reals = shares[:, true, given]
            return pair
        of_class: Reals = shares[:, :, given].sum(1) - shares[:, given, given]
        return of_class


@dataclass(frozen=True, eq=False)
class Mixing:
    """What is known of the rows called each name: calls [g], means of p [g, y], em [g, y]."""

    calls: Places
    means: Reals
    em: Reals

    @classmethod
    def of(cls, p: Reals, given: Places) -> Mixing:
        """From p(y | x) of the train rows [n, classes], which have not learnt them."""
        classes = p.shape[1]
        _, q = settle(p, given)
        calls = np.bincount(given, minlength=classes)
        means, em = np.zeros((classes, classes)), np.zeros((classes, classes))
        np.add.at(means, given, p)
        np.add.at(em, given, q)
        held = np.maximum(calls, 1)[:, None]
        return cls(calls, means / held, em / held)

    def shares(
        self, p_checked: Reals, labels: Places, weights: Reals, *, trust: float, pull: float
    ) -> Reals:
        """J [y, g] from checked rows with weights; `trust` is u."""
        prior = trust * self.em + (1 - trust) * np.eye(len(self.calls))
        found = _mixtures(self.means, prior, p_checked, labels, weights, pull)
        joined: Reals = (found * (self.calls / self.calls.sum())[:, None]).T
        return joined


def estimate_joint(mixing: Mixing, p_checked: Reals, labels: Places, *, seed: int) -> Joint:
    """From the train rows and p(y | x) of checked rows [m, classes], which have not been learnt, either."""
    weights = _bootstraps(labels, len(mixing.calls), seed)
    priors = Draws(seed, "priors").uniform(2 * len(weights)).reshape(2, -1)
    draws = np.stack([
        mixing.shares(p_checked, labels, each, trust=u, pull=PULL * 10 ** (-2 * v))
        for each, u, v in zip(weights, *priors, strict=True)
    ])  # fmt: skip
    return Joint(draws.mean(0), draws, weights)


def with_pairs(found: Joint, given: Places, labels: Places, *, seed: int) -> Joint:
    """The joint where `given` and true labels of checked rows [k] are known, drawn at random."""
    m = len(labels)
    weights = _exponential(len(found.draws), m, seed)
    weights *= m / weights.sum(1, keepdims=True)
    each = [
        counted(prior, given, labels, row_weights)
        for row_weights, prior in zip(
            [np.ones(m), *weights], [found.shares, *found.draws], strict=True
        )
    ]
    return Joint(each[0], np.stack(each[1:]), weights)


def counted(prior: Reals, given: Places, labels: Places, weights: Reals) -> Reals:
    """J from pairs of labels, by weight."""
    called, errors = prior.sum(0), prior * (1 - np.eye(len(prior)))
    share = (weights @ (given != labels) + PRIOR_ROWS * errors.sum()) / (len(labels) + PRIOR_ROWS)
    spread = PRIOR_ERRORS * errors / max(errors.sum(), 1e-9)
    wrong = given != labels
    np.add.at(spread, (labels[wrong], given[wrong]), weights[wrong])
    spread *= share / max(spread.sum(), 1e-9)
    spread *= np.minimum(1, 0.98 * called / np.maximum(spread.sum(0), 1e-9))
    shares: Reals = spread + np.diag(called - spread.sum(0))
    return shares


def _exponential(count: int, rows: int, seed: int) -> Reals:
    uniform = Draws(seed, "bootstraps").uniform(count * rows).reshape(count, rows)
    drawn: Reals = -np.log(np.maximum(uniform, 1e-12))
    return drawn


def _bootstraps(labels: Places, classes: int, seed: int) -> Reals:
    """[b, m] weights of the checked rows."""
    weights = _exponential(DRAWS if classes <= MANY else FEWER, len(labels), seed)
    for c in range(classes):
        of_class = labels == c
        if of_class.any():
            weights[:, of_class] *= of_class.sum() / weights[:, of_class].sum(1, keepdims=True)
    return weights


def _mixtures(
    means: Reals, prior: Reals, p_checked: Reals, labels: Places, weights: Reals, strength: float
) -> Reals:
    """r [g, y] of each given label."""
    from scipy.optimize import nnls

    classes = means.shape[0]
    sums, counts = np.zeros((classes, classes)), np.bincount(labels, weights, classes)
    np.add.at(sums, labels, p_checked * weights[:, None])
    of_class = (sums + np.eye(classes) * 1e-3) / (counts[:, None] + 1e-3)
    pull = np.sqrt(strength / np.maximum(counts, 1))
    firm = 1e3
    matrix = np.concatenate([of_class.T, np.diag(pull), np.full((1, classes), firm)])
    found = np.empty((classes, classes))
    for g in range(classes):
        aim = np.concatenate([means[g], pull * prior[g], [firm]])
        found[g] = nnls(matrix, aim)[0]
    mixtures: Reals = found / np.maximum(found.sum(1, keepdims=True), 1e-12)
    return mixtures
