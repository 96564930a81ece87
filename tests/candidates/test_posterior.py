"""The posterior of a label, against closed forms and expectation maximisation written out in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reweigh.candidates import SoftmaxRegression, posterior, posterior_rounds, settle, transitions


def by_hand(p, given, steps):
    """EM for T in plain loops: q_i(y) = p_i(y) T[y][g_i] / sum, T[y][g] from counts."""
    classes = len(p[0])
    q = [list(row) for row in p]
    for _ in range(steps):
        t = [[0.5 + (y == g) for g in range(classes)] for y in range(classes)]
        for row, g in zip(q, given, strict=True):
            for y in range(classes):
                t[y][g] += row[y]
        t = [[entry / sum(row) for entry in row] for row in t]
        q = []
        for row, g in zip(p, given, strict=True):
            joint = [row[y] * t[y][g] for y in range(classes)]
            q.append([j / sum(joint) for j in joint])
    return np.array(t), np.array(q)


def small_problem(n=60):
    draw = np.random.default_rng(0)
    return draw.dirichlet(np.ones(3), n), draw.integers(0, 3, n)


def test_it_is_bayes_rule():
    p = np.array([[0.7, 0.3]])
    t = np.array([[0.9, 0.1], [0.4, 0.6]])
    # Called 1: .7 x .1 against .3 x .6.
    assert posterior(p, t, np.array([1]))[0, 0] == pytest.approx(0.07 / (0.07 + 0.18))


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_t_and_q_are_those_of_the_loops(steps):
    p, given = small_problem()
    t, q = by_hand(p.tolist(), given.tolist(), steps)
    ours_t, ours_q = settle(p, given, most=steps)
    assert np.allclose(ours_t, t, atol=2e-4)
    assert np.allclose(ours_q, q, atol=2e-3)


def test_no_t_nearby_is_likelier_than_the_settled_one():
    p, given = small_problem(200)
    found, _ = settle(p, given, most=5000)

    def objective(t):
        # The likelihood of the given labels, and the counts that are added.
        likely = sum(
            math.log(sum(p[i, y] * t[y, g] for y in range(3))) for i, g in enumerate(given)
        )
        return likely + float(((0.5 + np.eye(3)) * np.log(t)).sum())

    draw, best = np.random.default_rng(1), objective(found)
    for size in (0.1, 0.03):
        for _ in range(20):
            other = np.abs(found + size * draw.normal(size=(3, 3))) + 1e-3
            assert objective(other / other.sum(1, keepdims=True)) < best


def test_a_large_sample_shows_the_true_t():
    draw = np.random.default_rng(2)
    true_t = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.4, 0.1, 0.5]])
    p = draw.dirichlet(0.3 * np.ones(3), 20_000)
    truth = np.array([draw.choice(3, p=row) for row in p])
    given = np.array([draw.choice(3, p=true_t[y]) for y in truth])
    found, q = settle(p, given)
    assert np.abs(found - true_t).max() < 0.03
    # Calibrated: of the rows with a posterior near .8, four in five are so.
    near = (q[:, 0] > 0.75) & (q[:, 0] < 0.85)
    assert (truth[near] == 0).mean() == pytest.approx(0.8, abs=0.06)


def test_without_rows_labels_are_believed():
    t = transitions(np.empty((0, 4)), np.empty(0, dtype=np.int64))
    assert t.argmax(1).tolist() == [0, 1, 2, 3]
    assert np.allclose(t.sum(1), 1)


def test_rounds_find_labels_that_a_pattern_hid():
    draw = np.random.default_rng(3)
    x = draw.normal(size=(640, 4))
    truth = (x[:, 0] > 0).astype(np.int64)
    given = np.where(
        (truth == 1) & (draw.uniform(size=640) < 0.7), 0, truth
    )  # most of class 1 is called 0
    learner = SoftmaxRegression()
    rounds = list(
        posterior_rounds(learner, learner, x[:600], given[:600], x[600:], truth[600:], classes=2, rounds=3)
    )  # fmt: skip
    for each in rounds:
        assert (each.q.argmax(1) == truth[:600]).mean() > 0.9 > (given == truth).mean()
    assert rounds[-1].transition[1, 0] == pytest.approx(0.7, abs=0.1)
