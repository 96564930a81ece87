"""The probability that a label is wrong, calibrated by sentinels: rows whose truth is known.

A checked row x of class y is a sentinel under every label g: right if g = y, wrong otherwise. It
stands for the train rows that are y and are called g, so its weight is J[y, g] / m_y (joint.py). This is
the train set over again, as far as errors depend on the true class alone, with every truth known.

Often the given label of a checked row is known as well, as it is among the data. Then the row under
that label is a sentinel by itself, of weight n / m, and errors may depend on whatever they like; the
sentinels above only help to fit, with SIMULATED of their weight.

    evidence e_w(x, g)    log of the largest p_w(c), c != g, over p_w(g): one per witness, out of fold
    evidence e_0(x, g)    logit of 1 - q(g),   q(c) proportional to p(c) J[c, g] / sum_g' J[c, g']
    probability           p_wrong = sigmoid(b + sum_w beta_w e_w)
    fitted                on the sentinels, by weight; penalty PENALTY / 2 |beta - usual|^2, with usual
                          POSTERIOR for e_0 and the rest of 1 shared by the others, until checked rows
                          say otherwise
    suggestion            the c != g with the largest q(c);  its probability p_wrong sigmoid(a + d l), l the
                          logit of q(c) / (1 - q(g)); a and d are fitted to the sentinels that are wrong

Nobody judges itself. Rows are dealt into parts; witnesses and the fit that judge a part have not seen it,
neither its train rows nor its checked rows. So a train row with a right label and a sentinel under its
own label are treated alike, which flags.py needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..candidates import Places, PlainData, Reals, deal
from ..rng import Draws
from ..runs import Estimate
from .flags import flagged_from, p_values, rate_at, right_share
from .joint import PULL, Joint, Mixing, counted, estimate_joint, with_pairs
from .witnesses import Testimony, hear, usual_witnesses

PENALTY, POSTERIOR = 1.0, 0.3
FARTHEST = 8.0
PARTS = 5
MOST_LABELS = 20
"""A sentinel has its own label, and the likeliest others of its class."""
FEWEST_PAIRS, SIMULATED = 20, 0.25
FLOOR = 0.5
MOST_DRAWN = 2_000_000
"""Numbers kept for intervals."""
Flags = npt.NDArray[np.bool_]


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
        """sum of values / sum of `among` (all) over sentinels by weight, with a 95% interval."""
        among = np.ones(len(values)) if among is None else among
        each = (self.draws @ values) / np.maximum(self.draws @ among, 1e-9)
        found = float(self.weight @ values / max(float(self.weight @ among), 1e-9))
        low, high = np.quantile(each, [0.025, 0.975])
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


def suspect(
    data: PlainData,
    *,
    trees: bool,
    seed: int,
    checked_given: Places | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Suspicion:
    """Judge every train row; `checked_given` [m] are labels that checked rows were given, -1 if unknown."""
    said = hear_witnesses(data, trees=trees, seed=seed, tell=tell)
    return judge_labels(data.given, data.labels, said, seed=seed, checked_given=checked_given)


def hear_witnesses(
    data: PlainData,
    *,
    trees: bool,
    seed: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Testimony:
    """What the usual witnesses say of every row, in PARTS parts."""
    m = len(data.labels)
    parts = max(2, min(PARTS, m // 2))
    folds = np.empty(m, dtype=np.int64)
    for part, places in enumerate(deal(data.labels, parts=parts, repeats=1, seed=seed)[0]):
        folds[places] = part
    train_folds = Draws(seed, "train parts").permutation(len(data.given)) % parts
    return hear(data, usual_witnesses(trees=trees), folds, train_folds, tell=tell)


def judge_labels(
    given: Places,
    labels: Places,
    said: Testimony,
    *,
    seed: int,
    checked_given: Places | None = None,
) -> Suspicion:
    """From what the witnesses said to probabilities and flags; `checked_given` [m] is -1 if unknown."""
    p, p_checked = said.truth()
    mixing = Mixing.of(p, given)
    shares = estimate_joint(mixing, p_checked, labels, seed=seed)
    if checked_given is None:
        checked_given = np.full(len(labels), -1)
    known = np.flatnonzero(checked_given >= 0)
    by_pairs = len(known) >= FEWEST_PAIRS
    if by_pairs:
        row, label = known, checked_given[known]
        shares = with_pairs(shares, label, labels[known], seed=seed)
        weight = np.full(len(known), len(given) / len(known))
    else:
        row, label, weight = _sentinel_labels(shares.shares, labels, len(given))
    turned = _transitions(
        mixing, p_checked, labels, said.folds, checked_given if by_pairs else None
    )
    everyone = np.arange(len(given))
    train = _Evidence.of(said.train, p, turned, said.train_folds, everyone, given)
    sentinels = _Evidence.of(said.checked, p_checked, turned, said.folds, row, label)
    learnt = [_Known(sentinels, row, label, weight)]
    if by_pairs:
        extra, name, counts = _sentinel_labels(shares.shares, labels, len(given))
        evidence = _Evidence.of(said.checked, p_checked, turned, said.folds, extra, name)
        learnt.append(_Known(evidence, extra, name, SIMULATED * counts))
    p_train, p_sentinels = np.empty((len(given), 2)), np.empty((len(row), 2))
    for part in range(int(said.folds.max()) + 1):
        fitted = _Fitted.of(learnt, labels, said.folds != part)
        here, there = said.train_folds == part, said.folds[row] == part
        p_train[here] = fitted.judge(train, here)
        p_sentinels[there] = fitted.judge(sentinels, there)
    right = label == labels[row]
    counts = _right_counts(shares, given, label[right], weight[right], by_pairs=by_pairs)
    against = (p_sentinels[right, 0], counts[label[right]])
    values = p_values(p_train[:, 0], counts[given], *against)
    share = right_share(values)
    rates = flagged_from(values, share)
    sentinel_rates = rate_at(values, rates, p_values(p_sentinels[:, 0], counts[label], *against))
    judged = sentinels.judged(p_sentinels, sentinel_rates)
    draws = _drawn(shares, row, labels[row], label, weight, by_pairs=by_pairs)
    return Suspicion(
        train.judged(p_train, rates),
        Sentinels(row, labels[row], label, weight, judged, draws),
        shares,
        share,
        by_pairs,
        said,
    )


@dataclass(frozen=True, eq=False)
class _Known:
    """Sentinels to learn from."""

    evidence: _Evidence
    row: Places
    label: Places
    weight: Reals


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Coefficients of p_wrong, and of the suggestion's part of it."""

    wrong: Reals
    suggestion: Reals

    @classmethod
    def of(cls, learnt: Sequence[_Known], labels: Places, seen: Flags) -> _Fitted:
        """Fitted to the sentinels of checked rows that are `seen`."""
        evidence = np.concatenate([each.evidence.values[seen[each.row]] for each in learnt])
        logits = np.concatenate([each.evidence.logits[seen[each.row]] for each in learnt])
        top = np.concatenate([each.evidence.suggested[seen[each.row]] for each in learnt])
        truth = np.concatenate([labels[each.row][seen[each.row]] for each in learnt])
        label = np.concatenate([each.label[seen[each.row]] for each in learnt])
        weight = np.concatenate([each.weight[seen[each.row]] for each in learnt])
        weight = weight * len(np.unique(learnt[0].row)) / learnt[0].weight.sum()
        wrong = (label != truth).astype(np.float64)
        hit = (top == truth).astype(np.float64)
        return cls(
            fit_logistic(evidence, wrong, weight, usual_coefficients(evidence.shape[1])),
            fit_logistic(logits[:, None], hit, weight * wrong, np.ones(1)),
        )

    def judge(self, evidence: _Evidence, rows: Flags) -> Reals:
        """[k, 2] p_wrong and p_suggested."""
        p_wrong = _probability(evidence.values[rows], self.wrong)
        part = _probability(evidence.logits[rows, None], self.suggestion)
        return np.stack([p_wrong, p_wrong * part], axis=1)


def _drawn(
    shares: Joint, row: Places, true: Places, label: Places, weight: Reals, *, by_pairs: bool
) -> Reals:
    """[b, s] the weights of sentinels in each bootstrap."""
    most = max(2, MOST_DRAWN // len(row))
    of_rows = shares.row_weights[:most]
    if by_pairs:  # one sentinel per row, in the order of the rows that were drawn
        return np.asarray(weight * of_rows)
    now = shares.draws[:most, true, label] / np.maximum(shares.shares[true, label], 1e-12)
    return np.asarray(weight * now * of_rows[:, row])


def _right_counts(
    shares: Joint, given: Places, label: Places, weight: Reals, *, by_pairs: bool
) -> Reals:
    """[classes] how many train rows a known-right sentinel of each class stands for, rather too many.

    Too few would make a class look wrong as a whole: if few of its checked rows are known, its share of
    right labels is uncertain. So it is the upper end of its interval, and not under FLOOR of the share
    of right labels among all rows.
    """
    classes = len(shares.shares)
    if by_pairs:
        return np.full(classes, weight[0] if len(weight) else 1.0)
    called, checked = np.bincount(given, minlength=classes), np.bincount(label, minlength=classes)
    upper = np.quantile(np.diagonal(shares.draws, axis1=1, axis2=2), 0.975, axis=0) * len(given)
    counts: Reals = np.maximum(upper, FLOOR * (1 - shares.wrong) * called) / np.maximum(checked, 1)
    return counts


def _transitions(
    mixing: Mixing, p_checked: Reals, labels: Places, folds: Places, checked_given: Places | None
) -> Reals:
    """[parts, y, g] how often y is called g, found without the checked rows of each part.

    With them, a class whose checked rows look odd would seem to be called right more often, those rows
    would seem less odd than train rows, and flags would break their promise.
    """
    found = []
    for part in range(int(folds.max()) + 1):
        rest = folds != part
        shares = mixing.shares(
            p_checked[rest], labels[rest], np.ones(int(rest.sum())), trust=0.5, pull=0.1 * PULL
        )
        if checked_given is not None:
            known = rest & (checked_given >= 0)
            shares = counted(shares, checked_given[known], labels[known], np.ones(int(known.sum())))
        found.append((shares + 1e-6) / (shares + 1e-6).sum(1, keepdims=True))
    return np.stack(found)


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
    """values [k, 1 + witnesses]: e_0 first; the likeliest other class, and the logit of its part."""

    values: Reals
    suggested: Places
    logits: Reals

    @classmethod
    def of(
        cls,
        said: Mapping[str, Reals],
        p: Reals,
        turned: Reals,
        folds: Places,
        rows: Places,
        labels: Places,
    ) -> _Evidence:
        each = np.arange(len(rows))
        joint_p = np.maximum(p[rows], 1e-9) * turned[folds[rows], :, labels]
        q = joint_p / joint_p.sum(1, keepdims=True)
        own = q[each, labels].copy()
        columns = [_clipped(np.log(np.maximum(1 - own, 1e-9)) - np.log(np.maximum(own, 1e-9)))]
        for probabilities in said.values():
            logs = np.log(np.maximum(probabilities[rows], 1e-9))
            of_label = logs[each, labels].copy()
            logs[each, labels] = -np.inf
            columns.append(_clipped(logs.max(1) - of_label))
        q[each, labels] = 0
        suggested = q.argmax(1)
        part = np.clip(q[each, suggested] / np.maximum(q.sum(1), 1e-12), 1e-6, 1 - 1e-6)
        return cls(np.stack(columns, axis=1), suggested, np.log(part / (1 - part)))

    def judged(self, p: Reals, rates: Reals) -> LabelJudgement:
        """With p_wrong and p_suggested [k, 2], and rates."""
        return LabelJudgement(p[:, 0], self.suggested, p[:, 1], rates)


def _clipped(values: Reals) -> Reals:
    return np.asarray(np.clip(values, -FARTHEST, FARTHEST))


def usual_coefficients(count: int) -> Reals:
    """[count] where the fit starts from: what is believed without checked rows."""
    rest = np.full(count - 1, (1 - POSTERIOR) / max(count - 1, 1))
    return np.concatenate([[POSTERIOR], rest])


def fit_logistic(evidence: Reals, wrong: Reals, weights: Reals, usual: Reals) -> Reals:
    """[1 + k] intercept and coefficients, by Newton's method; the penalty is at the head of the file."""
    rows = np.concatenate([np.ones((len(evidence), 1)), evidence], axis=1)
    usual = np.concatenate([[0.0], usual])
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
