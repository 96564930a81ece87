"""Candidates of a regression: numbers in place of classes, squared errors in place of shares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge as TheirRidge

from reweigh.candidates import (
    Boosting,
    Forest,
    Judgement,
    PlainData,
    Ridge,
    RidgeModel,
    TreesModel,
    blend,
    deal,
    mean_weights,
    mixed,
    number_candidates,
    plain_names,
)
from reweigh.candidates.blend import DOUBT, PRIOR_OF_NUMBERS
from reweigh.candidates.plain import on_near


@pytest.fixture
def problem():
    draw = np.random.default_rng(0)
    x = np.round(draw.normal(size=(120, 5)), 1).astype(np.float32)
    y = 3 + x @ [2.0, -1, 0, 0.5, 0] + draw.normal(size=120)
    return x, y[:, None], draw.uniform(0.5, 2, 120)


def test_ridge_is_scikit_learns(problem):
    x, y, w = problem
    theirs = TheirRidge(alpha=1 / 0.3).fit(x.astype(np.float64), y[:, 0], sample_weight=w)
    ours = Ridge(0.3).fit(x, y, w)
    assert ours.probabilities(x)[:, 0] == pytest.approx(theirs.predict(x), abs=1e-6)
    assert np.allclose(RidgeModel.of(ours.arrays()).probabilities(x), ours.probabilities(x), atol=1e-4)  # fmt: skip


def test_trees_are_scikit_learns(problem):
    x, y, w = problem
    boosted = HistGradientBoostingRegressor(
        max_iter=10, max_leaf_nodes=16, min_samples_leaf=5, early_stopping=False, random_state=0, max_bins=32,
    )  # fmt: skip
    forest = RandomForestRegressor(8, max_features="sqrt", min_samples_leaf=2, random_state=0)
    for learner, theirs in ((Boosting(rounds=10), boosted), (Forest(trees=8), forest)):
        ours = learner.fit(x, y, w)
        expected = theirs.fit(x, y[:, 0], sample_weight=w).predict(x)
        assert ours.probabilities(x)[:, 0] == pytest.approx(expected, abs=1e-5)
        again = TreesModel.of(ours.arrays()).probabilities(x)
        assert np.allclose(again, ours.probabilities(x), atol=1e-4)


def test_parts_have_numbers_of_the_whole_range():
    labels = np.random.default_rng(1).normal(size=100)
    for dealt in deal(labels, parts=5, repeats=2, seed=0):
        assert sorted(np.concatenate(dealt)) == list(range(100))
        for part in dealt:
            ranks = labels.argsort().argsort()[part]
            assert np.array_equal(np.sort(ranks) // 5, np.arange(20))  # one of every five in order


def test_right_is_minus_the_squared_error_in_the_mean_of_repeats():
    said = np.array([[[1.0], [2.0]], [[3.0], [np.nan]]])
    right = Judgement("x", said, 0).right(np.array([2.0, 5.0]))
    assert right.tolist() == [-1.0, -9.0]


def test_weights_are_the_brute_force_optimum():
    draw = np.random.default_rng(2)
    labels = draw.normal(size=60)
    said = labels + draw.normal([[0.0], [0.2], [1.0]], [[0.5], [0.6], [0.7]], size=(3, 60))
    variance = min(np.mean((said - labels) ** 2, axis=1))

    def objective(free):
        w = softmax(free)
        return (
            np.sum((labels - w @ said) ** 2) / (2 * variance)
            - PRIOR_OF_NUMBERS / 3 * np.log(w).sum()
        )

    best = minimize(objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})  # fmt: skip
    assert mean_weights(said, labels) == pytest.approx(softmax(best.x), abs=1e-4)
    said[1] = np.nan
    assert mean_weights(said, labels)[1] == 0
    assert mean_weights(said, labels).sum() == pytest.approx(1)


def test_a_blend_of_numbers_is_better_than_each_and_leaves_the_bad_out():
    draw = np.random.default_rng(3)
    labels = draw.normal(size=150)
    off = {"a": draw.normal(0, 0.5, 150), "b": draw.normal(0, 0.6, 150), "bad": draw.normal(0, 4.0, 150)}  # fmt: skip
    judged = [Judgement(name, (labels + each)[None, :, None], 0) for name, each in off.items()]
    found = blend(judged, labels, [np.arange(150)[k::5] for k in range(5)])
    assert {member.name for member in found.members} == {"a", "b"}
    best = max(each.right(labels).mean() for each in judged)
    assert found.judgement.right(labels).mean() > best
    together = mixed(found.members, {e.name: e.probabilities[0] for e in judged})[:, 0]
    by_hand = sum(m.weight * (labels + off[m.name] + m.shift) for m in found.members)
    assert together == pytest.approx(by_hand)


def test_a_candidate_that_is_off_to_one_side_is_shifted():
    draw = np.random.default_rng(4)
    labels = draw.normal(size=90)
    off = {"even": draw.normal(0, 0.5, 90), "high": 2 + draw.normal(0, 0.4, 90)}
    judged = [Judgement(name, (labels + each)[None, :, None], 0) for name, each in off.items()]
    found = blend(judged, labels, [np.arange(90)[k::5] for k in range(5)])
    members = {member.name: member for member in found.members}
    for name, member in members.items():
        assert member.shift == pytest.approx(-off[name].sum() / (90 + DOUBT))
    assert members["high"].weight > members["even"].weight
    assert found.judgement.right(labels).mean() > judged[0].right(labels).mean()


def test_far_numbers_are_not_learnt(problem):
    x, y, _ = problem
    given = y[:80, 0].copy()
    given[::4] += 50
    data = PlainData({"train": x[:80], "checked": x[80:]}, given, y[80:, 0], 1)
    (model,) = on_near(Ridge())(data, np.arange(40))
    assert np.abs(model.probabilities(x) - y).mean() < 1.5
    names = [each.name for each in number_candidates(data, trees=True)]
    assert tuple(names) == plain_names(trees=True, numbers=True)
