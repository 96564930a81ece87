"""Logistic regression with soft labels: scikit-learn's where labels are hard, its rows repeated where not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from reweigh.candidates import Rotation, SoftmaxModel, SoftmaxRegression, one_hot


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 5))
    y = (x[:, :3] + draw.normal(size=(80, 3))).argmax(1)
    return x, y, draw.uniform(0.2, 3, 80)


def test_hard_labels_are_scikit_learns_problem(rows):
    x, y, w = rows
    ours = SoftmaxRegression(strength=0.7).fit(x, one_hot(y, 3), w)
    theirs = LogisticRegression(C=0.7, tol=1e-10, max_iter=2000).fit(x, y, sample_weight=w)
    assert np.allclose(ours.probabilities(x), theirs.predict_proba(x), atol=5e-3)


def test_a_soft_label_is_several_rows_with_weights(rows):
    x, _, w = rows
    q = np.random.default_rng(1).dirichlet(np.ones(3), 80)
    ours = SoftmaxRegression().fit(x, q, w)
    theirs = LogisticRegression(tol=1e-10, max_iter=2000)
    theirs.fit(
        np.repeat(x, 3, axis=0), np.tile(np.arange(3), 80), sample_weight=(w[:, None] * q).ravel()
    )
    assert np.allclose(ours.probabilities(x), theirs.predict_proba(x), atol=5e-3)


def test_a_warm_start_leads_to_the_same_model(rows):
    x, y, w = rows
    other = SoftmaxRegression().fit(x, one_hot((y + 1) % 3, 3), w)
    cold = SoftmaxRegression().fit(x, one_hot(y, 3), w)
    warm = SoftmaxRegression().fit(x, one_hot(y, 3), w, start=other)
    assert np.allclose(cold.probabilities(x), warm.probabilities(x), atol=1e-2)


def test_a_rotated_fit_is_the_fit_of_the_sparse_rows(rows):
    draw = np.random.default_rng(2)
    x = csr_matrix(draw.normal(size=(40, 300)) * (draw.uniform(size=(40, 300)) < 0.1))
    new = csr_matrix(draw.normal(size=(15, 300)) * (draw.uniform(size=(15, 300)) < 0.1))
    y, w = draw.integers(0, 3, 40), np.ones(40)
    rotation = Rotation.of(x)
    turned = SoftmaxRegression().fit(rotation(x)[:30], one_hot(y[:30], 3), w[:30])
    straight = SoftmaxRegression().fit(x[:30], one_hot(y[:30], 3), w[:30])
    assert np.allclose(turned.probabilities(rotation(new)), straight.probabilities(new), atol=1e-2)
    assert np.allclose(
        rotation.back(turned).probabilities(new), turned.probabilities(rotation(new))
    )


def test_few_landmarks_keep_the_checked_rows(rows):
    draw = np.random.default_rng(3)
    checked, train = (csr_matrix(draw.normal(size=(n, 50))) for n in (10, 30))
    rotation = Rotation.over(checked, train, seed=0)
    lengths = np.asarray(checked.multiply(checked).sum(1)).ravel()
    assert np.allclose((rotation(checked) ** 2).sum(1), lengths)


def test_what_is_saved_predicts_the_same(rows):
    x, y, w = rows
    model = SoftmaxRegression().fit(x, one_hot(y, 3), w)
    again = SoftmaxModel.of(model.arrays())
    assert np.allclose(model.probabilities(x), again.probabilities(x), atol=1e-5)
