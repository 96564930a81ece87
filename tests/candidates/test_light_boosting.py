"""Trees of LightGBM as arrays say what its own objects say; without it one line says which extra brings it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from reweigh.candidates import LightBoosting, TreesModel, boosting_of, one_hot
from reweigh.errors import MissingExtraError, UnknownNameError


def problem(classes):
    draw = np.random.default_rng(classes)
    # Many equal values: rows lie right on thresholds.
    x = np.round(draw.normal(size=(150, 6)), 1).astype(np.float32)
    y = (x[:, :classes] + draw.normal(size=(150, classes))).argmax(1)
    return x, y, draw.uniform(0.5, 2, 150)


def theirs(kind, **more):
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed: reweigh[trees]")
    usual = {"n_estimators": 12, "num_leaves": 16, "min_child_samples": 5, "random_state": 0}
    return getattr(lightgbm, kind)(**usual, use_missing=False, verbosity=-1, **more)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_classes(classes):
    x, y, w = problem(classes)
    model = theirs("LGBMClassifier").fit(x, y, sample_weight=w)
    ours = LightBoosting(rounds=12).fit(x, one_hot(y, classes), w)
    expected = model.booster_.predict(x)
    said = ours.probabilities(x)
    assert np.allclose(said[:, 1] if classes == 2 else said, expected, atol=1e-9)
    again = TreesModel.of(ours.arrays()).probabilities(x)
    assert np.allclose(again, said, atol=1e-6)


def test_numbers():
    x, y, w = problem(5)
    model = theirs("LGBMRegressor").fit(x, y.astype(float), sample_weight=w)
    ours = LightBoosting(rounds=12).fit(x, y[:, None].astype(float), w)
    assert np.allclose(ours.probabilities(x)[:, 0], model.booster_.predict(x), atol=1e-9)


def test_soft_labels_are_rows_with_weights():
    x, y, w = problem(3)
    q = 0.7 * one_hot(y, 3) + 0.1
    model = theirs("LGBMClassifier")
    each = np.repeat(np.arange(len(x)), 3)
    model.fit(x[each], np.tile(np.arange(3), len(x)), sample_weight=(w[:, None] * q).ravel())
    ours = LightBoosting(rounds=12).fit(x, q, w)
    assert np.allclose(ours.probabilities(x), model.booster_.predict(x), atol=1e-9)


def test_classes_it_has_not_met_have_no_probability():
    pytest.importorskip("lightgbm", reason="lightgbm is not installed: reweigh[trees]")
    x, y, w = problem(3)
    known = y != 1
    p = LightBoosting(rounds=5).fit(x[known], one_hot(y[known], 3), w[known]).probabilities(x)
    assert (p[:, 1] == 0).all()
    assert np.allclose(p.sum(1), 1)
    alone = LightBoosting().fit(x[y == 2], one_hot(y[y == 2], 3), w[y == 2]).probabilities(x)
    assert (alone.argmax(1) == 2).all()


def test_without_lightgbm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(
        MissingExtraError, match=r"--trees lightgbm needs lightgbm.*reweigh\[trees\]"
    ):
        boosting_of("lightgbm", seed=0)


def test_a_mistyped_library():
    with pytest.raises(UnknownNameError, match="did you mean 'lightgbm'"):
        boosting_of("lightgmb", seed=0)
