"""What a choice is worth where only a part of the rows judged it."""

import numpy as np
import pytest

from reweigh.candidates import easiness, expect, honest_right, standing

SIMULATED = 400


def part_of(values, k):
    known = np.full(len(values), np.nan)
    known[:k] = values[:k]
    return known


def test_the_figure_is_the_regression_line_at_the_mean_of_all_rows():
    draw = np.random.default_rng(0)
    x = draw.integers(0, 5, 60) / 4
    y = (draw.random(60) < 0.2 + 0.7 * x).astype(float)
    slope, start = np.polyfit(x[:15], y[:15], 1)
    assert expect(part_of(y, 15), x).figure == pytest.approx(start + slope * x.mean())


def test_with_all_rows_it_is_the_mean_and_its_usual_interval():
    y = np.repeat([1.0, 0.0], [70, 30])
    found = expect(y, np.linspace(0, 1, 100))
    p = (70 + 1.96**2 / 2) / (100 + 1.96**2)
    assert (found.figure, found.rows) == (0.7, 100)
    assert found.interval == pytest.approx(1.96 * (p * (1 - p) / (100 + 1.96**2)) ** 0.5)


def test_rows_that_tell_nothing_change_nothing():
    y = part_of(np.tile([1.0, 0.0], 50), 20)
    for easy in (None, np.ones(100)):
        assert (expect(y, easy).figure, expect(y, easy).rows) == (0.5, 20)


def test_easy_rows_do_not_flatter():
    """All are right on the first rows; the quick candidate is wrong on half of the others."""
    quick = np.concatenate([np.tile([1.0, 1.0, 1.0, 0.0], 5), np.tile([1.0, 0.0], 40)])
    network = part_of(np.concatenate([quick[:19], [1.0], quick[20:]]), 20)
    means = standing({"quick": quick, "network": network})
    assert means["quick"] == 0.55
    assert 0.55 < means["network"] < np.nanmean(network)


@pytest.mark.parametrize("strength", [0.0, 2.0], ids=["x tells nothing", "x tells much"])
def test_over_many_draws_it_is_unbiased_and_its_interval_holds(strength):
    """Rows have a difficulty; the choice is far better than the quick candidates."""
    draw = np.random.default_rng(1)

    def chance(shift, difficulty):
        return 1 / (1 + np.exp(-shift - strength * difficulty))

    truth = chance(1.2, draw.normal(size=400_000)).mean()
    off, alone, held = [], [], 0
    for _ in range(SIMULATED):
        difficulty = draw.normal(size=100)
        y = (draw.random(100) < chance(1.2, difficulty)).astype(float)
        quick = {k: (draw.random(100) < chance(0, difficulty)).astype(float) for k in range(5)}
        found = expect(part_of(y, 25), easiness(quick))
        off.append(found.figure - truth)
        alone.append(y[:25].mean() - truth)
        held += abs(found.figure - truth) <= found.interval
    assert abs(np.mean(off)) < 3 * np.std(off) / SIMULATED**0.5 + 0.005
    assert np.std(off) < np.std(alone) * (0.92 if strength else 1.06)
    assert held / SIMULATED > 0.91


def test_only_candidates_that_all_rows_judged_say_what_is_easy():
    full, part = np.array([1.0, 0.0]), np.array([1.0, np.nan])
    assert easiness({"full": full, "part": part}).tolist() == [1, 0]
    assert easiness({"part": part}) is None


def test_the_steadiest_is_the_choice_where_the_other_parts_did_not_judge_it():
    """One part judged the blend: the others cannot speak against it, so its own figure counts there."""
    parts = [np.arange(5), np.arange(5, 10)]
    blend, quick = part_of(np.ones(10), 5), np.zeros(10)
    found = honest_right({"quick": quick, "blend": blend}, ("blend",), parts)
    assert found[:5].tolist() == [1] * 5
