"""The probability that a label is wrong, calibrated by sentinels: rows whose truth is known.

A checked row x of class y is a sentinel under every label g: right if g = y, wrong otherwise. It
stands for the train rows that are y and are called g, so its weight is J[y, g] / m_y (joint.py). This is
the train set over again, as far as errors depend on the true class alone, with every truth known.

    evidence e_w(x, g)    log of the largest p_w(c), c != g, over p_w(g): one per witness, out of fold
    evidence e_0(x, g)    logit of 1 - q(g),   q(c) proportional to p(c) J[c, g] / sum_g' J[c, g']
    probability           p_wrong = sigmoid(b + sum_w beta_w e_w)
    fitted                on the sentinels, by weight; penalty PENALTY / 2 |beta - (1, 0, 0, ...)|^2:
                          the posterior e_0 is believed until checked rows say otherwise
    suggestion            the c != g with the largest q(c);  its probability p_wrong q(c) / (1 - q(g))

Nobody judges itself. Rows are dealt into parts; witnesses and the fit that judge a part have not seen it,
neither its train rows nor its checked rows. So a train row with a right label and a sentinel under its
own label are treated alike, which flags.py needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..candidates import Places, PlainData, Reals, deal
from ..rng import Draws
from .flags import flagged_from, p_values, rate_at, right_share
from .joint import Joint, estimate_joint
from .witnesses import Testimony, hear, usual_witnesses

PENALTY = 1.0
FARTHEST = 8.0
PARTS = 5
MOST_LABELS = 20
"""A sentinel has its own label, and the likeliest others of its class."""


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
    """

    row: Places
    true: Places
    label: Places
    weight: Reals
    judged: LabelJudgement

    @property
    def wrong(self) -> Reals:
        """1 where the label is wrong."""
        return np.asarray(self.label != self.true, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Of the train rows, of the sentinels, and of all of them together."""

    train: LabelJudgement
    sentinels: Sentinels
    joint: Joint
    right_share: float


def suspect(
    data: PlainData,
    *,
    trees: bool,
    seed: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Suspicion:
    """Judge every train row; two checked rows of a class and more."""
    m = len(data.labels)
    parts = max(2, min(PARTS, m // 2))
    folds = np.empty(m, dtype=np.int64)
    for part, places in enumerate(deal(data.labels, parts=parts, repeats=1, seed=seed)[0]):
        folds[places] = part
    train_folds = Draws(seed, "train parts").permutation(len(data.given)) % parts
    said = hear(data, usual_witnesses(trees=trees), folds, train_folds, tell=tell)
    return judge_labels(data.given, data.labels, said, seed=seed)


def judge_labels(given: Places, labels: Places, said: Testimony, *, seed: int) -> Suspicion:
    """From what the witnesses said to probabilities and flags."""
    p, p_checked = said.truth()
    shares = estimate_joint(p, given, p_checked, labels, seed=seed)
    row, label, weight = _sentinel_labels(shares.shares, labels, len(given))
    transition = shares.shares + 1e-6
    transition = transition / transition.sum(1, keepdims=True)
    of_train = _Evidence.of(said.train, p, transition, np.arange(len(given)), given)
    of_sentinels = _Evidence.of(said.checked, p_checked, transition, row, label)
    wrong = (label != labels[row]).astype(np.float64)
    p_train, p_sentinels = np.empty(len(given)), np.empty(len(row))
    for part in range(int(said.folds.max()) + 1):
        seen = said.folds[row] != part
        scale = len(labels) / weight.sum()
        fitted = fit_logistic(of_sentinels.values[seen], wrong[seen], weight[seen] * scale)
        here, there = said.train_folds == part, ~seen
        p_train[here] = _probability(of_train.values[here], fitted)
        p_sentinels[there] = _probability(of_sentinels.values[there], fitted)
    right = wrong == 0
    # A row with a right label stands for itself among those known to be right of its class.
    of_class = np.zeros(len(shares.shares))
    of_class[label[right]] = weight[right]
    against = (p_sentinels[right], weight[right])
    values = p_values(p_train, of_class[given], *against)
    share = right_share(values)
    rates = flagged_from(values, share)
    sentinel_values = p_values(p_sentinels, of_class[label], *against)
    sentinel_rates = rate_at(values, rates, sentinel_values)
    sentinels = Sentinels(
        row, labels[row], label, weight, of_sentinels.judged(p_sentinels, sentinel_rates)
    )
    return Suspicion(of_train.judged(p_train, rates), sentinels, shares, share)


def _sentinel_labels(shares: Reals, labels: Places, rows: int) -> tuple[Places, Places, Reals]:
    """Row, label and weight of every sentinel."""
    classes = len(shares)
    kept = np.argsort(-(shares + 2 * np.eye(classes)), axis=1)[:, :MOST_LABELS]
    row = np.repeat(np.arange(len(labels)), kept.shape[1])
    label = kept[labels].ravel()
    counts = np.bincount(labels, minlength=classes)
    weight = shares[labels[row], label] * rows / counts[labels[row]]
    return row, label, weight


@dataclass(frozen=True, eq=False)
class _Evidence:
    """values [k, 1 + witnesses]: e_0 first; q [k, classes] without the label itself, which has 0."""

    values: Reals
    others: Reals

    @classmethod
    def of(
        cls, said: object, p: Reals, transition: Reals, rows: Places, labels: Places
    ) -> _Evidence:
        each = np.arange(len(rows))
        joint_p = np.maximum(p[rows], 1e-9) * transition[:, labels].T
        q = joint_p / joint_p.sum(1, keepdims=True)
        own = q[each, labels].copy()
        columns = [_clipped(np.log(np.maximum(1 - own, 1e-9)) - np.log(np.maximum(own, 1e-9)))]
        for probabilities in said.values():  # type: ignore[attr-defined]
            logs = np.log(np.maximum(probabilities[rows], 1e-9))
            of_label = logs[each, labels].copy()
            logs[each, labels] = -np.inf
            columns.append(_clipped(logs.max(1) - of_label))
        q[each, labels] = 0
        return cls(np.stack(columns, axis=1), q / np.maximum(q.sum(1, keepdims=True), 1e-12))

    def judged(self, p_wrong: Reals, rates: Reals) -> LabelJudgement:
        """With probabilities of being wrong, and rates."""
        suggested = self.others.argmax(1)
        of_it = self.others[np.arange(len(suggested)), suggested]
        return LabelJudgement(p_wrong, suggested, p_wrong * of_it, rates)


def _clipped(values: Reals) -> Reals:
    return np.asarray(np.clip(values, -FARTHEST, FARTHEST))


def fit_logistic(evidence: Reals, wrong: Reals, weights: Reals) -> Reals:
    """[1 + k] intercept and coefficients, by Newton's method; the penalty is at the head of the file."""
    rows = np.concatenate([np.ones((len(evidence), 1)), evidence], axis=1)
    usual = np.zeros(rows.shape[1])
    usual[1] = 1.0
    beta, pull = usual.copy(), np.full(rows.shape[1], PENALTY)
    pull[0] = 0.1
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(rows @ beta, -30, 30)))
        slope = rows.T @ (weights * (p - wrong)) + pull * (beta - usual)
        curve = (rows * (weights * np.maximum(p * (1 - p), 1e-6))[:, None]).T @ rows + np.diag(pull)
        move = np.linalg.solve(curve, slope)
        beta -= move * min(1.0, 2.0 / max(np.abs(move).max(), 1e-12))
        if np.abs(move).max() < 1e-6:
            break
    return beta


def _probability(evidence: Reals, beta: Reals) -> Reals:
    return np.asarray(1 / (1 + np.exp(-np.clip(beta[0] + evidence @ beta[1:], -30, 30))))
