"""What is noted over the steps of training is what a training written out row by row has."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.candidates import PlainData
from reweigh.sentinels.dynamics import RATE, STEPS, watch_training


def small(seed=0):
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, 60)
    x = draw.normal(size=(60, 5)).astype(np.float32)
    x[np.arange(60), truth] += 2
    given = np.where(draw.random(60) < 0.2, (truth + 1) % 3, truth)
    data = PlainData({"train": x[:45], "checked": x[45:]}, given[:45], truth[45:], 3)
    return data, truth[:45]


def by_definition(data, train, checked, row, label):
    """Loss, margin and predictions of one row, every sum written out in double precision."""
    x = np.concatenate([data.features["train"][train], data.features["checked"][checked]])
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float64)
    labels = np.concatenate([data.given[train], data.labels[checked]])
    w = np.zeros((6, 3))
    rate = RATE * 3 / np.mean([each @ each for each in x])
    logs, agreed = [], 0
    for _ in range(STEPS):
        z = np.append(row, 1.0) @ w
        logs.append(z - np.log(np.exp(z).sum()))
        agreed += int(z.argmax() == label)
        slope = np.zeros_like(w)
        for each, g in zip(x, labels, strict=True):
            p = np.exp(each @ w) / np.exp(each @ w).sum()
            slope += np.outer(each, np.eye(3)[g] - p) / len(x)
        w = w + rate * slope
    mean = np.mean(logs, axis=0)
    margin = max(mean[c] for c in range(3) if c != label) - mean[label]
    return -mean[label], margin, np.log((STEPS - agreed + 0.5) / (agreed + 0.5))


def test_loss_margin_and_predictions_by_their_definition():
    data, _ = small()
    train, checked = np.arange(30), np.arange(10)
    asked = data.features["train"][30:33]
    found = watch_training(data, train, checked)(asked)
    for row in range(3):
        for label in range(3):
            expected = by_definition(data, train, checked, asked[row], label)
            got = found.under(np.array([row]), np.array([label]))[0]
            assert got == pytest.approx(expected, abs=2e-3)


def test_rows_that_are_asked_about_are_not_learnt():
    """Their labels do not matter."""
    data, _ = small()
    train, checked = np.arange(30), np.arange(10)
    other = PlainData(data.features, np.append(data.given[:30], np.zeros(15, int)), data.labels, 3)
    a, b = (watch_training(d, train, checked)(d.features["train"][30:]) for d in (data, other))
    np.testing.assert_array_equal(a.log_p, b.log_p)
    np.testing.assert_array_equal(a.predicted, b.predicted)


def test_wrong_labels_fare_worse():
    data, truth = small(1)
    found = watch_training(data, np.arange(45), np.arange(15))(data.features["train"])
    values = found.under(np.arange(45), data.given)
    wrong = data.given != truth
    assert wrong.sum() > 4
    assert (values[wrong].mean(0) > values[~wrong].mean(0) + 0.5).all()
