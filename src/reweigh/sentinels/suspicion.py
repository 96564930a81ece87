"""The probability that a label is wrong, calibrated by sentinels: rows whose truth is known.

A checked row x of class y is a sentinel under every label g: right if g = y, wrong otherwise. It
stands for the train rows that are y and are called g, so its weight is J[y, g] / m_y (joint.py). This is
the train set over again, as far as errors depend on the true class alone, with every truth known.

Often the given label of a checked row is known as well, as it is among the data. Then the row under
that label is a sentinel by itself, of weight n / m, and errors may depend on whatever they like.

    evidence       what the witnesses and the posterior say of a row under a label (evidence.py)
    combination    p_wrong and p_suggested from it, learnt from sentinels (combination.py)

It is learnt from the sentinels above, with two changes. The copies that are wrong have only a part
1 - EVEN (1 - counted) of their weight as J says; the rest is spread evenly over the other labels, as J was
inferred and may be wrong. And where given labels are known, both kinds of sentinels are learnt from, each
with weight m in all: pairs that are wrong may be a handful.

Nobody judges itself. Rows are dealt into parts; witnesses and the fit that judge a part have not seen it,
neither its train rows nor its checked rows. So a train row with a right label and a sentinel under its
own label are treated alike, which flags.py needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..candidates import Places, PlainData, Reals, deal
from ..rng import Draws
from .bounds import Bounds, bound_errors
from .combination import Combination, Known
from .copies import evenly, sentinel_labels
from .evidence import LabelEvidence, counted_share, transitions
from .flags import flagged_from, p_values, rate_at, right_share
from .joint import Joint, Mixing, estimate_joint, with_pairs
from .judgements import LabelJudgement, Sentinels, Suspicion
from .witnesses import Testimony, hear, usual_witnesses

EVEN = 0.75
PARTS = 5
FEWEST_PAIRS = 20
FLOOR = 0.5
MOST_DRAWN = 2_000_000
"""Numbers kept for intervals."""


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
    known = np.flatnonzero(checked_given >= 0) if checked_given is not None else np.empty(0, int)
    by_pairs = len(known) >= FEWEST_PAIRS
    pairs = checked_given if by_pairs else None
    counted = counted_share(pairs, labels)
    turned = transitions(said, given, labels, pairs)

    def evidence(row: Places, label: Places) -> LabelEvidence:
        return LabelEvidence.of_checked(said, turned, row, label)

    if pairs is None:
        shares = replace(shares, bounds=_bounds(shares, said, given, labels, seed=seed))
        row, label, weight = sentinel_labels(shares.shares, labels, len(given))
        learnt: list[Known] = []
    else:
        row, label = known, pairs[known]
        shares = with_pairs(shares, label, labels[known], seed=seed)
        weight = np.full(len(known), len(given) / len(known))
        learnt = [Known(evidence(row, label), row, label, np.ones(len(row)))]
    even = EVEN * (1 - counted)
    mixed = (1 - even) * shares.shares + even * evenly(shares.shares)
    copy, name, counts = sentinel_labels(mixed, labels, len(given))
    counts *= len(labels) / counts.sum()
    learnt.append(Known(evidence(copy, name), copy, name, counts))
    sentinels = evidence(row, label)
    train = LabelEvidence.of_train(said, turned, given)
    p_train, p_sentinels = _by_parts(said, learnt, labels, train, sentinels, row, counted=counted)
    right = label == labels[row]
    counts = _right_counts(shares, given, label[right], weight[right], by_pairs=by_pairs)
    against = (p_sentinels[right, 0], counts[label[right]])
    values = p_values(p_train[:, 0], counts[given], *against)
    share = right_share(values)
    rates = flagged_from(values, share)
    own = np.where(right, counts[label], 0.0)
    of_sentinels = p_values(p_sentinels[:, 0], counts[label], *against, own=own)
    sentinel_rates = rate_at(values, rates, of_sentinels)
    draws = _drawn(shares, row, labels[row], label, weight, by_pairs=by_pairs)
    return Suspicion(
        _judged(train, p_train, rates),
        Sentinels(
            row, labels[row], label, weight, _judged(sentinels, p_sentinels, sentinel_rates), draws
        ),
        shares,
        share,
        by_pairs,
        said,
    )


def _by_parts(
    said: Testimony,
    learnt: list[Known],
    labels: Places,
    train: LabelEvidence,
    sentinels: LabelEvidence,
    row: Places,
    *,
    counted: float,
) -> tuple[Reals, Reals]:
    """p_wrong and p_suggested of train rows [n, 2] and sentinels, by fits that have not seen their part."""
    p_train, p_sentinels = np.empty((len(train.logits), 2)), np.empty((len(row), 2))
    for part in range(said.parts):
        fitted = Combination.of(learnt, labels, said.folds != part, counted=counted)
        here, there = said.train_folds == part, said.folds[row] == part
        p_train[here] = fitted.judge(train, here)
        p_sentinels[there] = fitted.judge(sentinels, there)
    return p_train, p_sentinels


def _judged(evidence: LabelEvidence, p: Reals, rates: Reals) -> LabelJudgement:
    return LabelJudgement(p[:, 0], evidence.suggested, p[:, 1], rates)


def _bounds(shares: Joint, said: Testimony, given: Places, labels: Places, *, seed: int) -> Bounds:
    """Of the errors, from what the witnesses predict in the mean."""
    p, p_checked = (np.mean(list(each.values()), axis=0) for each in (said.train, said.checked))
    classes = shares.draws.sum(2)
    return bound_errors(
        p.argmax(1), given, p_checked.argmax(1), labels, shares.row_weights, classes, seed=seed
    )


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
