"""The ranking, against its definition written out row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reweigh.audit import rank_classes, rank_numbers


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-a-plain-run"])
def test_classes_are_ranked_as_the_module_says(beside):
    draw = np.random.default_rng(0)
    n, classes = 200, 5
    p = draw.dirichlet(np.ones(classes), n)
    given, loss = draw.integers(0, classes, n), draw.exponential(2, n)
    rows = np.arange(n)
    others = p.copy()
    others[rows, given] = -1
    zeros, plain = draw.random(n), draw.exponential(1, n)
    found = rank_classes(
        given,
        mean_loss=loss,
        zero_share=zeros,
        p_given=p[rows, given],
        rival=others.argmax(1),
        p_rival=others.max(1),
        plain_loss=plain if beside else None,
    )
    for place, k in enumerate(found.order):
        best = max((p[k, c], c) for c in range(classes) if c != given[k])
        doubt, margin = 1 - math.exp(-loss[k]), p[k, given[k]] - best[0]
        second = 1 - math.exp(-plain[k]) if beside else (1 - margin) / 2
        assert found.suspicion[place] == pytest.approx((doubt + second) / 2)
        suggests = best[0] > p[k, given[k]] and best[0] >= 0.5
        assert found.suggested[place] == (best[1] if suggests else -1)
        assert found.probability[place] == pytest.approx(best[0] if suggests else p[k, given[k]])
    assert sorted(found.order) == list(range(n))
    assert (np.diff(found.suspicion) <= 0).all()
    assert 0 <= found.suspicion.min() <= found.suspicion.max() <= 1


def test_an_example_never_seen_is_ranked_by_its_margin():
    found = rank_classes(
        np.array([0, 0]),
        mean_loss=np.array([np.nan, 0.0]),
        zero_share=np.array([np.nan, 0.0]),
        p_given=np.array([0.1, 0.9]),
        rival=np.array([1, 1]),
        p_rival=np.array([0.9, 0.1]),
    )
    assert found.order.tolist() == [0, 1]
    assert found.suspicion[0] == pytest.approx(0.9)


def test_equals_keep_the_order_of_the_data():
    same = np.full(50, 0.5)
    found = rank_classes(
        np.zeros(50, int), mean_loss=same, zero_share=same, p_given=same, rival=same.astype(int), p_rival=same
    )  # fmt: skip
    assert found.order.tolist() == list(range(50))


def of_class(means, plain_loss=None):
    """The suspicion of one example of each class, all alike but for their class's zero share."""
    n = len(means)
    same = np.full(n, 0.5)
    found = rank_classes(
        np.arange(n), mean_loss=np.full(n, math.log(2)), zero_share=np.array(means), p_given=same,
        rival=np.zeros(n, int), p_rival=same, plain_loss=plain_loss,
    )  # fmt: skip
    suspicion = np.empty(n)
    suspicion[found.order] = found.suspicion
    return suspicion


def test_a_class_that_hardly_ever_helped_is_more_suspicious_as_a_whole():
    suspicion = of_class([0.4, 0.5, 0.6, 0.45, 0.9])
    logits = [math.log(z / (1 - z)) for z in (0.4, 0.5, 0.6, 0.45, 0.9)]
    middle = sorted(logits)[2]
    assert suspicion[:4] == pytest.approx([0.5] * 4)
    assert suspicion[4] == pytest.approx(1 / (1 + math.exp(middle - logits[4])))


@pytest.mark.parametrize(
    "means", [[0.4, 0.5, 0.6, 0.45, 0.9], [0.5, 0.5, 0.5]], ids=["one-does", "too-few-to-tell"]
)
def test_a_plain_run_is_not_asked_where_a_class_may_stand_out(means):
    plain = np.arange(float(len(means)))
    assert of_class(means, plain_loss=plain) == pytest.approx(of_class(means))


@pytest.mark.parametrize(
    "means", [[0.4, 0.5, 0.6, 0.45, 0.65], [0.1, 0.1, 0.9], [0.2, 0.3, 0.4, 0.5]]
)
def test_classes_that_do_not_stand_out_are_alike(means):
    assert of_class(means) == pytest.approx([0.5] * len(means))


def test_numbers_are_suspicious_by_their_distance_in_usual_distances():
    given, predicted = np.array([0.0, 1.0, -1.0, 10.0, 0.5]), np.zeros(5)
    found = rank_numbers(given, predicted=predicted)
    spread = 1.4826 * 1.0  # the median of 0, 1, 1, 10, 0.5
    assert found.order.tolist() == [3, 1, 2, 4, 0]
    z = 10 / spread
    assert found.suspicion[0] == pytest.approx(z**2 / (9 + z**2))
    assert found.suggested[0] == 0.0
    assert np.isnan(found.suggested[1:]).all()


def test_perfect_predictions_raise_no_suspicion():
    assert rank_numbers(np.ones(4), predicted=np.ones(4)).suspicion.tolist() == [0.0] * 4
