"""Every plain model that learns train rows counts them as the data say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reweigh.candidates import PlainData, number_candidates, plain_candidates

N, M = 60, 12


def data(classes=3, *, counts=None):
    draw = np.random.default_rng(0)
    features = {name: draw.normal(size=(k, 4)) for name, k in (("train", N), ("checked", M))}
    labels = (
        [np.arange(k) % classes for k in (N, M)]
        if classes > 1
        else [draw.normal(size=k) for k in (N, M)]
    )
    return PlainData(features, *labels, classes, counts)


def test_rows_that_count_nothing_are_not_learnt():
    """A model fitted with counts of 0 is that of the rows without them."""
    kept = np.arange(N) % 4 != 0
    whole = data(counts=np.where(kept, 1.0, 0.0))
    part = replace(
        whole, features={**whole.features, "train": whole.features["train"][kept]},
        given=whole.given[kept], counts=None,
    )  # fmt: skip
    places, asked = np.arange(M), whole.features["checked"]
    one, two = (
        {c.name: c for c in plain_candidates(d, trees=False)}["linear_all"].fit(places)[0].fitted
        for d in (whole, part)
    )
    np.testing.assert_allclose(one.probabilities(asked), two.probabilities(asked), atol=1e-3)


@pytest.mark.parametrize("classes", [3, 1])
def test_counts_change_every_candidate_that_learns_train_rows(classes):
    counts = np.where(np.arange(N) % 2, 1.9, 0.1)
    make = plain_candidates if classes > 1 else number_candidates
    plain, counted = (make(data(classes, counts=c), trees=classes > 1) for c in (None, counts))
    asked = data(classes).features["checked"]
    for one, two in zip(plain, counted, strict=True):
        before, after = (c.fit(np.arange(M))[-1].fitted.probabilities(asked) for c in (one, two))
        assert (np.abs(before - after).max() > 1e-4) == (not one.name.endswith("_checked")), (
            one.name
        )
