"""Trees as arrays say what scikit-learn's objects say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor

from reweigh.candidates import Boosting, Forest, TreesModel, one_hot


def problem(classes):
    draw = np.random.default_rng(classes)
    x = np.round(draw.normal(size=(150, 6)), 1).astype(
        np.float32
    )  # many equal values: at thresholds
    y = (x[:, :classes] + draw.normal(size=(150, classes))).argmax(1)
    return x, y, draw.uniform(0.5, 2, 150)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_boosting(classes):
    x, y, w = problem(classes)
    ours = Boosting(rounds=12).fit(x, one_hot(y, classes), w)
    fewer = {"max_bins": 32}  # than the usual 255, as there are 150 rows
    theirs = HistGradientBoostingClassifier(
        max_iter=12, max_leaf_nodes=16, min_samples_leaf=5, early_stopping=False, random_state=0, **fewer
    ).fit(x, y, sample_weight=w)  # fmt: skip
    assert np.allclose(ours.probabilities(x), theirs.predict_proba(x), atol=1e-6)


def test_boosting_knows_classes_it_has_not_met():
    x, y, w = problem(3)
    known = y != 1
    p = Boosting(rounds=5).fit(x[known], one_hot(y[known], 3), w[known]).probabilities(x)
    assert (p[:, 1] == 0).all()
    assert np.allclose(p.sum(1), 1)
    alone = Boosting().fit(x[y == 2], one_hot(y[y == 2], 3), w[y == 2]).probabilities(x)
    assert (alone.argmax(1) == 2).all()


def test_a_forest():
    x, y, w = problem(3)
    q = 0.8 * one_hot(y, 3) + 0.2 / 3
    ours = Forest(trees=15).fit(x, q, w)
    theirs = RandomForestRegressor(15, max_features="sqrt", min_samples_leaf=2, random_state=0)
    assert np.allclose(
        ours.probabilities(x), theirs.fit(x, q, sample_weight=w).predict(x), atol=1e-6
    )


@pytest.mark.parametrize("learner", [Boosting(rounds=5), Forest(trees=5)])
def test_what_is_saved_predicts_the_same(learner):
    x, y, w = problem(3)
    model = learner.fit(x, one_hot(y, 3), w)
    again = TreesModel.of(model.arrays())
    assert np.allclose(model.probabilities(x), again.probabilities(x), atol=1e-6)
    assert again.probabilities(x[:0]).shape == (0, 3)
