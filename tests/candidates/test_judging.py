"""Candidates are judged by rows they have not seen, and chosen by a rule that can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from reweigh.candidates import (
    Judgement,
    choose,
    confusion,
    deal,
    figures,
    honest_right,
    judge,
    judge_once,
    usual_folds,
)

LABELS = np.array([0] * 12 + [1] * 6 + [2] * 2)


@dataclass
class Says:
    """A model that says what it is told."""

    p: np.ndarray

    def probabilities(self, part, places=None):
        return self.p if places is None else self.p[places]


@dataclass
class Spy:
    """Knows the labels of the checked rows it was given, and guesses class 0 for all others."""

    name: str = "spy"
    title: str = "spy"
    learns: bool = True
    seen: list = field(default_factory=list)

    def fit(self, checked):
        self.seen.append(checked)
        p = np.tile([0.6, 0.3, 0.1], (len(LABELS), 1))
        p[checked] = np.eye(3)[LABELS[checked]]
        return [Says(p)]


def test_parts_are_disjoint_whole_and_stratified():
    for dealt in deal(LABELS, parts=5, repeats=3, seed=0):
        assert sorted(np.concatenate(dealt)) == list(range(20))
        for part in dealt:
            assert 2 <= np.sum(LABELS[part] == 0) <= 3
            assert 1 <= np.sum(LABELS[part] == 1) <= 2
    first, second, _ = deal(LABELS, parts=5, repeats=3, seed=0)
    assert any(len(np.setxor1d(a, b)) for a, b in zip(first, second, strict=True))


def test_no_row_judges_a_model_that_knows_it():
    spy, folds = Spy(), usual_folds(LABELS, seed=0)
    judged = judge(spy, LABELS, folds, classes=3)
    assert len(spy.seen) == 10  # few rows: dealt twice
    parts = [part for dealt in folds for part in dealt]
    for checked, part in zip(spy.seen, parts, strict=True):
        assert sorted([*checked, *part]) == list(range(20))
    # Had a row seen itself, it would be right.
    assert judged.right(LABELS).tolist() == [1.0] * 12 + [0.0] * 8


def test_one_that_learns_nothing_from_checked_rows_is_fitted_once():
    spy = Spy(learns=False)
    judged = judge(spy, LABELS, usual_folds(LABELS, seed=0), classes=3)
    assert [len(checked) for checked in spy.seen] == [0]
    assert judged.right(LABELS).mean() == 0.6


def test_a_limit_leaves_rows_unjudged():
    spy, folds = Spy(), usual_folds(LABELS, seed=0)
    right = judge(spy, LABELS, folds, classes=3, most=2).right(LABELS)
    assert np.flatnonzero(~np.isnan(right)).tolist() == sorted(np.concatenate(folds[0][:2]))


def test_the_variant_of_a_part_is_chosen_by_the_others():
    folds = [[np.arange(0, 10), np.arange(10, 20)]]

    class Two(Spy):
        def fit(self, checked):
            good, bad = np.eye(3)[LABELS], np.full((20, 3), 1 / 3)
            first, second = good.copy(), bad.copy()
            first[10:], second[10:] = bad[10:], good[10:]  # the first is good on 0-9 only
            return [Says(first), Says(second)]

    judged = judge_once(Two(), LABELS, folds, checked=20)
    # Rows 10-19 choose the second, which knows nothing of 0-9; and the other way round.
    assert np.allclose(judged.probabilities, 1 / 3)


def test_figures_are_those_of_scikit_learn():
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    draw = np.random.default_rng(0)
    p = draw.dirichlet(np.ones(3), 20)
    judged = Judgement("x", p[None], 0)
    found = figures(judged.right(LABELS), confusion(judged, LABELS, 3))
    predicted = p.argmax(1)
    assert found.accuracy == pytest.approx(accuracy_score(LABELS, predicted))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(LABELS, predicted))
    assert found.macro_f1 == pytest.approx(f1_score(LABELS, predicted, average="macro"))
    hits = found.accuracy * 20
    p = (hits + 1.96**2 / 2) / (20 + 1.96**2)
    assert found.interval == pytest.approx(1.96 * (p * (1 - p) / (20 + 1.96**2)) ** 0.5)


def test_what_judges_the_choice_has_no_part_in_it():
    # Each is right on its own half: chosen on one half, it is wrong on the other.
    a, b = np.repeat([1.0, 0.0], 50), np.repeat([0.0, 1.0], 50)
    parts = [np.arange(50), np.arange(50, 100)]
    assert honest_right({"a": a, "b": b}, ("a", "b"), parts).sum() == 0


def test_the_steadiest_is_kept_unless_another_is_clearly_ahead():
    steady = np.repeat([1.0, 0.0], [60, 40])
    little = steady.copy()
    little[[60, 61, 0]] = [1, 1, 0]  # ahead by one row of a hundred; the standard error is 1.7
    clearly = steady.copy()
    clearly[60:66] = 1  # ahead by six; the standard error is 2.4
    rights = {"little": little, "steady": steady}
    assert choose(rights, ("blend", "steady")) == "steady"
    assert choose({**rights, "clearly": clearly}, ("blend", "steady")) == "clearly"
    assert choose({"little": little}, ("blend", "steady")) == "little"
