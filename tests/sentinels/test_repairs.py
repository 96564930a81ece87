"""Decisions on labels, error rates of sources, and pairs of given and true labels."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.candidates import PlainData
from reweigh.sentinels import (
    KEEP,
    RELABEL,
    SET_ASIDE,
    LabelJudgement,
    Policy,
    Sentinels,
    SourceRate,
    p_values,
    right_labels,
    source_rates,
    source_weights,
    suspect,
)


def test_decisions_by_their_definition():
    p_suggested = np.array([0.99, 0.95, 0.80, 0.30, 0.99])
    rates = np.array([0.01, 0.01, 0.05, 0.05, 0.50])
    judged = LabelJudgement(np.ones(5), np.zeros(5, int), p_suggested, rates)
    # (.99 + .95 + .80) / 3 = .913 is enough at .1, with .30 it is not; the last is not flagged.
    actions = Policy.of(judged, 0.1).actions(judged)
    assert actions.tolist() == [RELABEL, RELABEL, RELABEL, SET_ASIDE, KEEP]
    assert Policy.of(judged, 0.001).actions(judged).tolist() == [KEEP] * 5
    # At .3 the mean of all four, .76, would do: but the last is rather wrong than right.
    assert Policy.of(judged, 0.3).actions(judged).tolist() == actions.tolist()


def where_it_is_hard(seed, *, rows=900, checked=150):
    """Two classes; labels are wrong where a row lies near the other class. Checked rows have labels, too."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 2, rows + checked)
    x = draw.normal(size=(rows + checked, 3))
    x[:, 0] += np.where(truth == 1, 1.5, -1.5)
    near = np.abs(x[:, 0]) < 1.2
    given = np.where(near & (draw.random(len(x)) < 0.6), 1 - truth, truth)
    features = {"train": x[:rows].astype(np.float32), "checked": x[rows:].astype(np.float32)}
    return PlainData(features, given[:rows], truth[rows:], 2), truth[:rows], given[rows:]


@pytest.fixture(scope="module")
def hard():
    found = []
    for seed in range(8):
        data, truth, given = where_it_is_hard(seed)
        both = [suspect(data, trees=False, seed=seed, checked_given=g) for g in (given, None)]
        found.append((data, truth, *both))
    return found


def test_known_pairs_count_errors_that_depend_on_the_row(hard):
    """Without given labels such errors cannot be counted, and with them they are."""
    inside, off, off_without = 0, [], []
    for data, truth, with_pairs, without in hard:
        share = np.mean(data.given != truth)
        found = with_pairs.joint.errors()
        inside += found.low < share < found.high
        off.append(found.share - share)
        off_without.append(without.joint.errors().share - share)
    assert inside >= 6  # of 8
    assert abs(np.mean(off)) < 0.03
    assert np.mean(off_without) < -0.05


def test_flags_hold_their_rate_where_errors_depend_on_the_row(hard):
    shares = []
    for data, truth, with_pairs, _ in hard:
        flagged = with_pairs.train.flagged_from <= 0.3
        shares.append((flagged & (data.given == truth)).sum() / max(1, flagged.sum()))
    assert np.mean(shares) < 0.3 + 2 * np.std(shares) / np.sqrt(len(shares))


def test_right_labels_before_and_after_are_within_their_intervals(hard):
    """Given labels known or not; without them errors of this kind cannot be counted, so the intervals are wide."""
    before, after, away = [0, 0], [0, 0], []
    for data, truth, *both in hard:
        for way, found in enumerate(both):
            policy = Policy.of(found.train, 0.3)
            unknown = None if found.by_pairs else found.joint.errors()
            said = right_labels(found.sentinels, policy, wrong=unknown)
            actions = policy.actions(found.train)
            labels = np.where(actions == RELABEL, found.train.suggested, data.given)
            kept = actions != SET_ASIDE
            really = np.mean((labels == truth)[kept])
            before[way] += said.before.low <= np.mean(data.given == truth) <= said.before.high
            after[way] += said.after.low <= really <= said.after.high
            if found.by_pairs:
                away.append(said.after.share - really)
    assert min(before) >= 7, before  # of 8
    assert min(after) >= 7, after
    assert abs(np.mean(away)) < 0.015


def test_a_known_right_row_is_not_held_against_itself():
    """Its p-value is that of a new row among the others."""
    draw = np.random.default_rng(0)
    known, weights = draw.normal(size=9), draw.random(9)
    found = p_values(known, weights, known, weights, own=weights)
    for j in range(9):
        others = np.arange(9) != j
        alone = p_values(known[[j]], weights[[j]], known[others], weights[others])
        assert found[j] == pytest.approx(alone[0])


def test_error_rates_of_sources_are_shrunk_and_cover():
    """Rates of 60 sources from Beta(2, 8): nearer to the truth than the own ones, within the intervals."""
    draw = np.random.default_rng(0)
    true, rows = draw.beta(2, 8, 60), draw.integers(3, 120, 60)
    source = np.repeat(np.arange(60), rows)
    wrong = (draw.random(len(source)) < true[source]).astype(float)
    found = source_rates(wrong, source, 60)
    assert (found.rows == rows).all()
    np.testing.assert_allclose(found.own, np.bincount(source, wrong) / rows)
    assert np.mean((found.rate - true) ** 2) < 0.8 * np.mean((found.own - true) ** 2)
    assert np.mean((found.low <= true) & (true <= found.high)) > 0.88


def test_rates_of_sources_are_found_where_single_rows_are_doubtful():
    """A calibrated p_wrong that knows nothing of sources, and little of rows: its means are far too alike."""
    draw = np.random.default_rng(2)
    true = np.linspace(0.02, 0.6, 30)
    source = np.repeat(np.arange(30), 100)
    wrong = draw.random(3000) < true[source]
    looks = draw.normal(size=3000) + 1.2 * wrong  # log of the likelihood ratio: 1.2 looks - .72
    odds = true.mean() / (1 - true.mean()) * np.exp(1.2 * looks - 0.72)
    found = source_rates(odds / (1 + odds), source, 30)
    assert np.ptp(found.own) < 0.6 * np.ptp(true)
    assert np.abs(found.rate - true).mean() < 0.6 * np.abs(found.own - true).mean()
    assert np.mean((found.low <= true) & (true <= found.high)) > 0.85


def test_sources_that_do_not_differ_have_one_rate():
    draw = np.random.default_rng(1)
    source = np.repeat(np.arange(30), 40)
    wrong = (draw.random(1200) < 0.2).astype(float)
    found = source_rates(wrong, source, 30)
    assert np.ptp(found.rate) < 0.4 * np.ptp(found.own)


def test_a_source_counts_what_its_labels_say_beyond_chance():
    """Of four classes, labels drawn at random are wrong in three quarters."""
    rows = np.array([100, 300, 100])
    rates = SourceRate(rows, np.array([0.0, 0.3, 0.9]), *(np.zeros(3) for _ in range(3)))
    found = source_weights(rates, 4)
    said = np.array([1.0, 1 - 0.4, 0.0])
    np.testing.assert_allclose(found, said / np.average(said, weights=rows))
    assert np.average(found, weights=rows) == pytest.approx(1)
    nothing = SourceRate(rows, np.full(3, 0.8), *(np.zeros(3) for _ in range(3)))
    assert source_weights(nothing, 4).tolist() == [1, 1, 1]


def test_an_interval_from_no_errors_is_not_narrow():
    """100 checked rows, all right: the interval is that of Jeffreys, up to the draws."""
    from scipy.stats import beta

    draw = np.random.default_rng(0)
    rows, ones = np.arange(100), np.ones(100)
    draws = draw.exponential(size=(2000, 100))
    draws *= 900 / draws.sum(1, keepdims=True)
    judged = LabelJudgement(ones, rows, ones, ones)
    found = Sentinels(rows, rows, rows, 9 * ones, judged, draws).share(ones)
    assert found.share == 1
    assert found.low == pytest.approx(beta.ppf(0.025, 100.5, 0.5), abs=0.004)
