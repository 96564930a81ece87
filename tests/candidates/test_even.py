"""Lopsided data and even checked rows: every class counts the same; else nothing is changed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from reweigh.candidates import PlainData, even_counts, plain_candidates

LOPSIDED = np.repeat([0, 1, 2], [100, 30, 10])


def test_every_class_counts_the_same():
    counts = even_counts(LOPSIDED, np.repeat([0, 1, 2], [4, 4, 3]), 3)
    assert counts.sum() == pytest.approx(140)
    for c in range(3):
        assert counts[c == LOPSIDED].sum() == pytest.approx(140 / 3)


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        (LOPSIDED, [10, 6, 4]),  # checked rows as they came
        (LOPSIDED, [2, 2, 2]),  # too few to say that it is meant
        (np.repeat([0, 1, 2], [100, 80, 25]), [5, 5, 5]),  # nearly even data
    ],
)
def test_else_nothing_is_changed(given, checked):
    assert even_counts(given, np.repeat([0, 1, 2], checked), 3) is None


def test_a_regression_has_no_classes():
    assert even_counts(np.arange(9.0), np.arange(3.0), 1) is None


def test_all_rows_are_learnt_as_scikit_learn_balances_them():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(140, 4)) + LOPSIDED[:, None] * 0.7
    labels = np.repeat([0, 1, 2], 4)
    known = draw.normal(size=(12, 4)) + labels[:, None] * 0.7
    counts = even_counts(LOPSIDED, labels, 3)
    data = PlainData({"train": x, "checked": known}, LOPSIDED, labels, 3, counts)
    ours = {c.name: c for c in plain_candidates(data, trees=False)}["linear_all"].fit(np.arange(12))
    theirs = LogisticRegression(class_weight="balanced", max_iter=2000, tol=1e-8).fit(x, LOPSIDED)
    assert np.allclose(ours[0].probabilities("checked"), theirs.predict_proba(known), atol=0.01)


def test_a_pruned_row_keeps_its_count():
    """`weighted`, `corrected` and `pruned` give the rare class more than they give without counts."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(140, 4)) + LOPSIDED[:, None] * 0.4
    labels = np.repeat([0, 1, 2], 4)
    known = draw.normal(size=(12, 4)) + labels[:, None] * 0.4
    for name in ("linear_weighted", "linear_corrected", "linear_pruned"):
        rare = []
        for counts in (None, even_counts(LOPSIDED, labels, 3)):
            data = PlainData({"train": x, "checked": known}, LOPSIDED, labels, 3, counts)
            candidate = {c.name: c for c in plain_candidates(data, trees=False)}[name]
            rare.append(candidate.fit(np.arange(12))[0].probabilities("train")[:, 2].mean())
        assert rare[1] > 1.05 * rare[0], name
