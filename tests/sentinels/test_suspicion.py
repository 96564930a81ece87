"""The probability that a label is wrong, held against simulations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from reweigh.candidates import PlainData
from reweigh.sentinels import Mixing, estimate_joint, suspect, witnesses
from reweigh.sentinels.combination import fit_logistic
from reweigh.sentinels.evidence import SMOOTH, LabelEvidence, tempered, transitions

TRANSITION = np.array([[0.7, 0.3, 0.0], [0.05, 0.9, 0.05], [0.2, 0.0, 0.8]])


def simulated(seed, *, rows=900, checked=60, apart=2.5):
    """Three classes of normal points; labels by TRANSITION; checked rows drawn at random."""
    draw = np.random.default_rng(seed)
    truth = draw.choice(3, rows + checked, p=[0.5, 0.3, 0.2])
    x = draw.normal(size=(rows + checked, 4))
    x[np.arange(len(x)), truth] += apart
    given = np.array([draw.choice(3, p=TRANSITION[t]) for t in truth])
    features = {"train": x[:rows].astype(np.float32), "checked": x[rows:].astype(np.float32)}
    return PlainData(features, given[:rows], truth[rows:], 3), truth[:rows]


@pytest.fixture(scope="module")
def runs():
    """Some simulations, judged."""
    found = []
    for seed in range(6):
        data, truth = simulated(seed)
        found.append((data, truth, suspect(data, trees=False, seed=seed)))
    return found


def test_probabilities_are_calibrated_and_rank_well(runs):
    said = np.concatenate([s.train.p_wrong for _, _, s in runs])
    wrong = np.concatenate([data.given != truth for data, truth, _ in runs])
    for low, high in ((0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 1.0)):
        here = (said >= low) & (said <= high)
        assert abs(said[here].mean() - wrong[here].mean()) < 0.08
    assert roc_auc_score(wrong, said) > 0.9


def test_suggestions_are_right_as_often_as_they_say(runs):
    said = np.concatenate([s.train.p_suggested for _, _, s in runs])
    right = np.concatenate([s.train.suggested == truth for _, truth, s in runs])
    sure = said > 0.7
    assert sure.sum() > 300
    assert abs(said[sure].mean() - right[sure].mean()) < 0.08


def test_flags_hold_their_rate_on_average(runs):
    shares = []
    for data, truth, s in runs:
        flagged = s.train.flagged_from <= 0.2
        shares.append((flagged & (data.given == truth)).sum() / max(1, flagged.sum()))
    assert 0.02 < np.mean(shares) < 0.2 + 2 * np.std(shares) / np.sqrt(len(shares))


def test_the_number_of_wrong_labels_is_within_its_interval(runs):
    held = 0
    for data, truth, s in runs:
        share = np.mean(data.given != truth)
        low, high = s.joint.errors().low, s.joint.errors().high
        assert low <= s.joint.wrong <= high
        assert abs(s.joint.wrong - share) < 0.08
        held += low <= share <= high
    assert held == 6


def test_sentinels_stand_for_all_rows(runs):
    for data, _, s in runs:
        assert s.sentinels.weight.sum() == pytest.approx(len(data.given))
        by_pair = np.zeros((3, 3))
        np.add.at(by_pair, (s.sentinels.true, s.sentinels.label), s.sentinels.weight)
        np.testing.assert_allclose(by_pair / by_pair.sum(), s.joint.shares, atol=1e-12)


def test_the_joint_is_exact_where_the_classes_are_told_apart():
    """With a perfect p, J is the table of counts."""
    draw = np.random.default_rng(0)
    truth, given = draw.integers(0, 3, 600), draw.integers(0, 3, 600)
    labels = np.repeat(np.arange(3), 50)
    mixing = Mixing.of(np.eye(3)[truth], given)
    found = estimate_joint(mixing, np.eye(3)[labels], labels, seed=0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (truth, given), 1 / 600)
    np.testing.assert_allclose(found.shares, counts, atol=0.01)


USUAL, PULL = np.array([0.5, 0.2, 0.3]), np.array([3.0, 1.0, 1.0])


def test_the_fit_is_the_minimum_of_its_objective_among_coefficients_that_are_not_negative():
    draw = np.random.default_rng(0)
    evidence, weights = draw.normal(size=(80, 3)), draw.random(80)
    for sign in (1, -1):  # the second time the data speak against the second coefficient
        wrong = (draw.random(80) < 1 / (1 + np.exp(-sign * 2 * evidence[:, 1]))).astype(float)

        def objective(beta, wrong=wrong):
            z = beta[0] + evidence @ beta[1:]
            losses = np.log1p(np.exp(z)) - wrong * z
            away = beta - np.array([0, *USUAL])
            return (weights * losses).sum() + (np.array([0.1, *PULL]) * away**2).sum() / 2

        found = fit_logistic(evidence, wrong, weights, USUAL, PULL)
        best = objective(found)
        assert (found[1:] >= 0).all()
        assert (found[2] == 0) == (sign == -1)
        for direction in np.eye(4):
            for step in (-1e-3, 1e-3):
                if (found + step * direction)[1:].min() >= 0:
                    assert objective(found + step * direction) > best


def test_evidence_is_that_of_its_definition():
    draw = np.random.default_rng(1)
    said = {name: draw.dirichlet(np.ones(4), 6) for name in ("corrected_a", "b")}
    p, turned = said["corrected_a"], draw.dirichlet(np.ones(4), (2, 4))
    folds, rows, labels = (
        np.array([0, 1, 0, 1, 0, 1]),
        np.array([5, 0, 0, 3]),
        np.array([1, 2, 3, 0]),
    )
    found = LabelEvidence.of_checked(
        witnesses.Testimony(said, said, folds, folds), turned, rows, labels
    )
    for k, (row, g) in enumerate(zip(rows, labels, strict=True)):
        q = p[row] * turned[folds[row]][:, g]
        q /= q.sum()
        assert found.values[k, 0] == pytest.approx(np.log((1 - q[g]) / q[g]))
        others = [c for c in range(4) if c != g]
        smooth = {name: (each[row] + SMOOTH) / (1 + 4 * SMOOTH) for name, each in said.items()}
        for column, each in enumerate(smooth.values(), start=1):
            margin = np.log(max(each[c] for c in others) / each[g])
            assert found.values[k, column] == pytest.approx(margin)
        mean = np.mean(list(smooth.values()), axis=0)
        best = max(others, key=lambda c: mean[c])
        part = mean[best] / mean[others].sum()
        assert found.suggested[k] == best
        assert found.logits[k] == pytest.approx(np.log(part / (1 - part)))


def test_a_transition_is_believed_as_far_as_it_is_trusted():
    joint = np.array([[0.3, 0.1, 0.1], [0.0, 0.25, 0.0], [0.0, 0.0, 0.25]])
    whole, none = tempered(joint, 1.0), tempered(joint, 0.0)
    np.testing.assert_allclose(whole, joint / joint.sum(1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(none, np.full((3, 3), 0.1) + 0.7 * np.eye(3), atol=1e-12)
    half = tempered(joint, 0.5)
    np.testing.assert_allclose(half.sum(1), 1)
    product = np.sqrt(whole * none)
    np.testing.assert_allclose(half, product / product.sum(1, keepdims=True), atol=1e-12)


def test_rows_of_a_part_do_not_tell_what_they_are_judged_by(runs):
    """Neither its train rows nor its checked rows: a row and a sentinel of a part are treated alike."""
    data, _, found = runs[0]
    said, draw = found.testimony, np.random.default_rng(0)
    pairs = draw.integers(0, 3, len(data.labels))
    before = transitions(said, data.given, data.labels, pairs)
    here, there = said.train_folds == 2, said.folds == 2
    given, labels = data.given.copy(), data.labels.copy()
    given[here], labels[there] = (given[here] + 1) % 3, (labels[there] + 1) % 3
    other = (
        pairs.copy()
    )  # as many errors: how far T is believed depends on their number, over all parts
    other[there] = np.where(
        pairs[there] == data.labels[there], labels[there], (labels[there] + 1) % 3
    )
    after = transitions(said, given, labels, other)
    np.testing.assert_allclose(before[2], after[2], rtol=1e-12)
    assert np.abs(before[0] - after[0]).max() > 1e-3


def row_dependent(seed, *, rows=800, checked=100):
    """Four classes in rings; a straight border makes the errors: a linear model has them, too."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows + checked, 6)).astype(np.float32)
    radius = (x[:, :3] ** 2).sum(1)
    truth = np.digitize(radius, np.quantile(radius, [0.25, 0.5, 0.75]))
    near = np.abs(x[:, 0]) < 0.35
    given = np.where(
        near & (draw.random(len(x)) < 0.8), np.clip(truth + np.sign(x[:, 1]), 0, 3), truth
    )
    features = {"train": x[:rows], "checked": x[rows:]}
    data = PlainData(features, given[:rows].astype(int), truth[rows:], 4)
    return data, truth[:rows], given[rows:]


def test_errors_that_depend_on_the_row_do_not_mislead_the_combination():
    """The inferred T is wrong here; one suspicion stays beside its best part, given labels known or not.

    A free fit was .085 behind it, and .016 in the mean.
    """
    behind = []
    for seed in range(3):
        data, truth, pairs = row_dependent(seed)
        wrong = data.given != truth
        for known in (None, pairs.astype(int)):
            found = suspect(data, trees=True, seed=seed, checked_given=known)
            flat = np.full((5, 4, 4), 0.1) + 0.6 * np.eye(4)
            parts = LabelEvidence.of_train(found.testimony, flat, data.given).values
            best = max(roc_auc_score(wrong, column) for column in parts.T)
            behind.append(best - roc_auc_score(wrong, found.train.p_wrong))
    assert max(behind) < 0.06, behind
    assert np.mean(behind) < 0.01, behind
