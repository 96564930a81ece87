"""The probability that a label is wrong, held against simulations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from reweigh.candidates import PlainData
from reweigh.sentinels import Mixing, estimate_joint, suspect
from reweigh.sentinels.suspicion import PENALTY, fit_logistic

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
        held += low - 0.01 <= share <= high + 0.01
    assert held >= 4  # of 6


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


def test_the_fit_is_the_minimum_of_its_objective():
    draw = np.random.default_rng(0)
    evidence, weights = draw.normal(size=(80, 3)), draw.random(80)
    wrong = (draw.random(80) < 1 / (1 + np.exp(-evidence[:, 1]))).astype(float)

    def objective(beta):
        z = beta[0] + evidence @ beta[1:]
        losses = np.log1p(np.exp(z)) - wrong * z
        usual = np.array([0, 0.5, 0.2, 0.3])
        pull = np.array([0.1, PENALTY, PENALTY, PENALTY])
        return (weights * losses).sum() + (pull * (beta - usual) ** 2).sum() / 2

    found = fit_logistic(evidence, wrong, weights, np.array([0.5, 0.2, 0.3]))
    best = objective(found)
    for direction in np.eye(4):
        for step in (-1e-3, 1e-3):
            assert objective(found + step * direction) > best
