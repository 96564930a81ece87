"""Bounds on how many labels are wrong hold for every table of given, true and predicted labels."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.candidates import PlainData
from reweigh.sentinels import suspect
from reweigh.sentinels.bounds import Bounds, bound_errors


@pytest.mark.parametrize("seed", range(20))
def test_no_table_of_labels_breaks_the_bounds(seed):
    """P(g, y, h) is drawn at random: errors and predictions depend on each other in every way."""
    table = np.random.default_rng(seed).dirichlet(np.full(27, 0.2)).reshape(3, 3, 3)  # g, y, h
    bounds = Bounds(table.sum(1), table.sum(0)[None])
    joint = table.sum(2)

    def held(true_share, *asked):
        low, high = bounds.errors(*asked)
        return low - 1e-12 <= true_share <= high + 1e-12

    assert held(1 - np.trace(joint))
    for c in range(3):
        assert held(joint[c].sum() - joint[c, c], c)
        for d in range(3):
            assert c == d or held(joint[c, d], c, d)


def test_a_perfect_prediction_leaves_no_doubt_but_that_of_sampling():
    draw = np.random.default_rng(0)
    truth, given, labels = (draw.integers(0, 3, k) for k in (600, 600, 300))
    weights = draw.exponential(size=(200, 300))
    classes = np.stack([weights[:, labels == y].sum(1) for y in range(3)], axis=1)
    classes /= classes.sum(1, keepdims=True)
    found = bound_errors(truth, given, labels, labels, weights, classes, seed=0)
    low, high = found.errors()
    share = np.mean(truth != given)
    assert low <= share <= high
    assert high - low < 0.03
    low, high = found.errors(1, 2)
    assert low <= np.mean((given == 1) & (truth == 2)) <= high


def test_the_interval_holds_where_errors_depend_on_the_row():
    """Wrong where a row lies near the other class: copies of checked rows count too few of them."""
    held, missed = 0, 0
    for seed in range(8):
        draw = np.random.default_rng(seed)
        truth = draw.integers(0, 2, 700)
        x = draw.normal(size=(700, 3)).astype(np.float32)
        x[:, 0] += np.where(truth == 1, 1.5, -1.5)
        near = np.abs(x[:, 0]) < 1.2
        given = np.where(near & (draw.random(700) < 0.6), 1 - truth, truth)
        data = PlainData({"train": x[:600], "checked": x[600:]}, given[:600], truth[600:], 2)
        found = suspect(data, trees=False, seed=seed).joint
        share = np.mean(given[:600] != truth[:600])
        low, high = found.errors().low, found.errors().high
        held += low <= share <= high
        low, high = np.quantile(1 - np.trace(found.draws, axis1=1, axis2=2), [0.025, 0.975])
        missed += not low <= share <= high
    assert held == 8
    assert missed >= 4  # the bootstrap alone would have said too little
