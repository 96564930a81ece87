"""Flags hold the rate of false alarms they promise, on average over draws of the checked rows."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.sentinels import flagged_from, needed, p_values, right_share


def test_p_values_by_their_definition():
    draw = np.random.default_rng(0)
    known, known_weights = draw.normal(size=7).round(1), draw.random(7)
    rows, weights = np.concatenate([draw.normal(size=20), known]).round(1), draw.random(27)
    defined = [
        (w + sum(v for k, v in zip(known, known_weights, strict=True) if k >= s)) / (w + known_weights.sum())
        for s, w in zip(rows, weights, strict=True)
    ]  # fmt: skip
    np.testing.assert_allclose(p_values(rows, weights, known, known_weights), defined)


def test_flags_by_their_definition():
    """Row by row and rate by rate: the k smallest, k the largest with p_(k) <= q k / (n right)."""
    p, right = np.random.default_rng(1).random(40) ** 3, 0.7
    rates = flagged_from(p, right)
    for q in np.linspace(0.01, 0.99, 50):
        ordered = np.sort(p)
        fits = [k for k in range(1, 41) if ordered[k - 1] <= q * k / (40 * right)]
        threshold = ordered[max(fits) - 1] if fits else -1.0
        np.testing.assert_array_equal(rates <= q, p <= threshold)


@pytest.mark.parametrize(("wrong", "m"), [(0.1, 150), (0.4, 40), (0.4, 150)])
def test_false_alarms_are_as_rare_as_promised(wrong, m):
    """Suspicions of right rows are N(0, 1), of wrong ones N(3, 1); 300 draws."""
    draw, q, shares, found = np.random.default_rng(2), 0.1, [], []
    for _ in range(300):
        bad = draw.random(800) < wrong
        suspicion = draw.normal(size=800) + 3 * bad
        p = p_values(suspicion, np.ones(800), draw.normal(size=m), np.ones(m))
        flagged = flagged_from(p, right_share(p)) <= q
        shares.append((flagged & ~bad).sum() / max(1, flagged.sum()))
        found.append((flagged & bad).sum() / bad.sum())
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) < q + 2 * error
    assert np.mean(shares) > 0.4 * q  # a promise that is kept by flagging nothing is worth nothing
    assert np.mean(found) > 0.3


def test_weights_make_up_for_a_balanced_choice_of_checked_rows():
    """Class 1 is a tenth of the rows, half of the checked ones, and much more suspicious."""
    draw, q, weighted, plain = np.random.default_rng(3), 0.1, [], []
    for _ in range(200):
        kind = draw.random(600) < 0.9  # class 0
        bad = draw.random(600) < 0.3
        suspicion = draw.normal(size=600) - 2 * kind + 4 * bad
        checked = np.arange(100) % 2 == 0
        known = draw.normal(size=100) - 2 * checked
        for weights, shares in ((np.array([0.1, 0.9]), weighted), (np.array([0.9, 0.1]), plain)):
            p = p_values(suspicion, weights[kind.astype(int)], known, weights[checked.astype(int)])
            flagged = flagged_from(p, right_share(p)) <= q
            shares.append((flagged & ~bad).sum() / max(1, flagged.sum()))
    assert np.mean(weighted) < q + 2 * np.std(weighted) / np.sqrt(200)
    assert np.mean(weighted) > 0.4 * q
    assert np.mean(plain) < 0.5 * np.mean(weighted)  # the wrong way round: far fewer


def test_how_many_checked_rows_are_needed():
    m = needed(0.1, 0.1, right=0.9)
    assert m == 89
    for count, possible in ((m, True), (m - 1, False)):
        n = 1000
        suspicion = np.concatenate([np.full(100, 5.0), np.zeros(900)])
        p = p_values(suspicion, np.ones(n), np.zeros(count), np.ones(count))
        assert (flagged_from(p, 0.9) <= 0.1).any() == possible
