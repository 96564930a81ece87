"""The rule from scores to weights, for any scores."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from reweigh import effective_sample_size, weights_from_scores

numbers = st.floats(-(2.0**100), 2.0**100, allow_nan=False, width=32)
scores = st.lists(numbers, min_size=1, max_size=50).map(torch.tensor)


@given(scores)
def test_non_negative_and_summing_to_one_or_all_zero(scores):
    weights = weights_from_scores(scores)
    total = float(weights.sum())
    assert (weights >= 0).all()
    assert torch.isfinite(weights).all()
    assert abs(total - 1) < 1e-5 if (scores > 0).any() else total == 0


@given(scores)
def test_zero_exactly_where_the_score_is_not_positive(scores):
    weights = weights_from_scores(scores)
    assert (weights[scores <= 0] == 0).all()


@given(scores, st.sampled_from([1e-30, 1e-3, 1.0, 7.0, 1e6]))
def test_the_scale_of_the_scores_cancels(scores, scale):
    scores = scores.double()
    assert torch.allclose(weights_from_scores(scores), weights_from_scores(scores * scale))


def test_by_hand():
    weights = weights_from_scores(torch.tensor([3.0, -5.0, 1.0, 0.0]))
    assert torch.equal(weights, torch.tensor([0.75, 0.0, 0.25, 0.0]))


def test_effective_sample_size_by_hand():
    assert float(effective_sample_size(torch.full((8,), 1 / 8))) == 8
    assert float(effective_sample_size(torch.tensor([0.0, 1.0, 0.0]))) == 1
    assert float(effective_sample_size(torch.zeros(3))) == 0
    assert abs(float(effective_sample_size(torch.tensor([0.5, 0.25, 0.25]))) - 8 / 3) < 1e-6


def test_effective_sample_size_row_by_row():
    weights = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([effective_sample_size(row) for row in weights])
    assert torch.equal(effective_sample_size(weights), rows)
