"""The blend's weights are the optimum of what its docstring says, and its figure is cross-fitted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from reweigh.candidates import Judgement, Member, blend, mixed, mixture_weights, sharpness
from reweigh.candidates.blend import PRIOR, SPREAD


def brute_force(likely: np.ndarray) -> np.ndarray:
    """The best of several descents without gradients, of the objective written out row by row."""

    def objective(free):
        w = softmax(free)
        total = PRIOR / len(w) * np.log(w).sum()
        for row in likely.T:
            known = ~np.isnan(row)
            total += np.log(w[known] @ row[known] / w[known].sum())
        return -total

    starts = np.random.default_rng(0).normal(size=(3, len(likely)))
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    found = [minimize(objective, s, method="Nelder-Mead", options=options) for s in starts]
    return softmax(min(found, key=lambda each: each.fun).x)


@pytest.mark.parametrize("unjudged", [0.0, 0.4])
def test_weights_are_the_brute_force_optimum(unjudged):
    draw = np.random.default_rng(3)
    likely = draw.beta([[2], [1], [3]], 1, size=(3, 25))
    likely[1:][draw.random((2, 25)) < unjudged] = np.nan
    assert np.isnan(likely).any() == (unjudged > 0)
    assert mixture_weights(likely) == pytest.approx(brute_force(likely), abs=1e-4)


def test_without_rows_all_weigh_the_same_and_with_many_the_best_does():
    assert mixture_weights(np.full((4, 0), np.nan)) == pytest.approx(np.full(4, 1 / 4))
    assert mixture_weights(np.tile([[0.9], [0.3]], 500))[0] > 0.99


def test_sharpness_is_the_best_of_a_fine_grid():
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 3, 60)
    logits = 1.5 * np.eye(3)[labels] + draw.normal(size=(2, 60, 3))
    sure = np.maximum(softmax(4 * logits, axis=2), 1e-6)  # four times too certain
    sure[1, 30:] = np.nan  # these rows were judged once; each row still counts once
    grid = np.linspace(-3, 3, 6001)

    def objective(log_s):
        powers = sure ** np.exp(log_s)
        p = powers / powers.sum(2, keepdims=True)
        rows = [np.mean([np.log(p[r, i, labels[i]]) for r in range(1 if i >= 30 else 2)])
                for i in range(60)]  # fmt: skip
        return np.sum(rows) - log_s**2 / (2 * SPREAD**2)

    coarse = max(grid[::100], key=objective)
    best = max(grid[np.abs(grid - coarse) < 0.1], key=objective)
    assert sharpness(sure, labels) == pytest.approx(np.exp(best), rel=2e-3)
    assert sharpness(sure, labels) < 0.6


def test_what_judges_a_part_gave_no_weight():
    labels = np.arange(80) % 2
    good, bad = 0.1 + 0.8 * np.eye(2)[labels], 0.9 - 0.8 * np.eye(2)[labels]
    first, second = good.copy(), bad.copy()
    first[40:], second[40:] = bad[40:], good[40:]  # each is right on one half, wrong on the other
    each = [Judgement("first", first[None], 0), Judgement("second", second[None], 0)]
    found = blend(each, labels, [np.arange(40), np.arange(40, 80)])
    assert found.judgement.right(labels).sum() == 0
    # Weights of all rows, judged on the same rows, would not show it.
    assert [member.weight for member in found.members] == pytest.approx([0.5, 0.5])


def test_candidates_that_help_nothing_are_left_out():
    draw = np.random.default_rng(2)
    labels = draw.integers(0, 3, 300)
    good = softmax(2 * np.eye(3)[labels] + draw.normal(size=(300, 3)), axis=1)
    half = good.copy()
    half[::2] = np.nan
    luck = draw.dirichlet(np.ones(3), 300)
    each = [Judgement(n, p[None], 0) for n, p in (("good", good), ("half", half), ("luck", luck))]
    parts = [np.arange(300)[k::5] for k in range(5)]
    found = blend(each, labels, parts)
    assert [member.name for member in found.members] == ["good", "half"]
    assert sum(member.weight for member in found.members) == pytest.approx(1)
    right = found.judgement.right(labels)
    assert np.flatnonzero(np.isnan(right)).tolist() == list(range(0, 300, 2))


def test_a_blend_of_different_errors_is_better_than_each():
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, 300)
    each = [
        Judgement(n, softmax(np.eye(2)[labels] + draw.normal(size=(300, 2)), 1)[None], 0)
        for n in "abc"
    ]
    found = blend(each, labels, [np.arange(300)[k::5] for k in range(5)])
    best = max(one.right(labels).mean() for one in each)
    assert found.judgement.right(labels).mean() > best + 0.03


def test_the_mean_is_by_weights_of_the_sharpened():
    p = {"a": np.array([[0.9, 0.1]]), "b": np.array([[0.2, 0.8]])}
    flat = np.array([0.9**0.5, 0.1**0.5]) / (0.9**0.5 + 0.1**0.5)
    said = mixed([Member("a", 3.0, 0.5), Member("b", 1.0, 1.0)], p)
    assert said[0] == pytest.approx(0.75 * flat + 0.25 * p["b"][0])
