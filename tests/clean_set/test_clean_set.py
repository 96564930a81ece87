"""Rows the data vouches for, and rows worth checking."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import reweigh
from reweigh.clean_set import cross_fit
from reweigh.clean_set.coverage import covering_order
from reweigh.clean_set.gain import rehearse
from reweigh.errors import BatchError, ReweighWarning, SettingError


def clouds(per_class: int = 40, wrong: int = 12, classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Clouds on a circle; the first `wrong` of each class carry the next class's label."""
    truth = torch.arange(classes).repeat_interleave(per_class)
    angle = 2 * torch.pi * truth / classes
    centres = 4 * torch.stack([angle.cos(), angle.sin()], 1)
    x = centres + torch.randn(len(truth), 2)
    given = truth.clone()
    for c in range(classes):
        given[c * per_class : c * per_class + wrong] = (c + 1) % classes
    return x, given, truth


def test_wrong_labels_have_negative_margins():
    x, given, truth = clouds()
    found = cross_fit(x, given)
    right = given == truth
    assert (found.margins[right] > 0).float().mean() > 0.9
    assert (found.margins[~right] < 0).float().mean() > 0.9
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(len(x)))
    assert set(found.agreement.unique().tolist()) <= {0, 1 / 3, 2 / 3, 1} | {
        float(np.float32(v)) for v in (1 / 3, 2 / 3)
    }


def test_no_label_vouches_for_itself():
    """A row whose class nobody else has is known to no model that is asked about it."""
    x, given, _ = clouds(wrong=0)
    given[5] = 9
    assert cross_fit(x, given).probabilities[5, 3] < 0.05


def test_pseudo_clean_is_right_balanced_and_the_same_every_time():
    x, given, truth = clouds()
    rows = reweigh.pseudo_clean(x, given, per_class=7).rows
    assert torch.bincount(given[rows]).tolist() == [7, 7, 7]
    assert torch.equal(given[rows], truth[rows])
    assert len(rows.unique()) == 21
    assert torch.equal(rows, reweigh.pseudo_clean(x, given, per_class=7).rows)
    names = np.array(["a", "b", "c"])[given.numpy()]
    assert torch.equal(rows, reweigh.pseudo_clean(x.numpy(), names, per_class=7).rows)


def test_errors_with_a_pattern_are_invisible_to_it():
    """The limit that its documentation states: most of what lies on the left is called wrongly."""
    x, _, truth = clouds(per_class=60, wrong=0)
    given = truth.clone()
    given[truth == 1] = 2  # every row of one class
    rows = reweigh.pseudo_clean(x, given, per_class=10).rows
    assert (given[rows] != truth[rows]).any()


def test_a_class_that_nobody_believes_is_announced():
    x, given, _ = clouds()
    given[torch.randperm(len(given))[:3]] = 7
    with pytest.warns(ReweighWarning, match="1 of 4 classes have fewer than 3 rows"):
        reweigh.pseudo_clean(x, given, per_class=3)


def test_a_model_of_ones_own_sees_the_rows_in_their_shape():
    x, given, truth = clouds()
    made = []

    def factory() -> nn.Module:
        made.append(nn.Sequential(nn.Flatten(), nn.Linear(2, 3)))
        return made[-1]

    rows = reweigh.pseudo_clean(
        x.view(-1, 1, 2), given, per_class=5, model=factory, folds=2, repeats=2
    ).rows
    assert len(made) == 4
    assert (given[rows] == truth[rows]).float().mean() > 0.9


def test_the_covering_order_is_greedy_by_the_definition():
    x, classes = torch.randn(14, 2), torch.arange(14) % 2

    def uncovered(chosen: list[int], members: list[int]) -> float:
        return sum(min(float((x[i] - x[j]).square().sum()) for j in chosen) for i in members)

    order = covering_order(x, classes, 6, seed=0).tolist()
    for c in (0, 1):
        members = [i for i in range(14) if i % 2 == c]
        mine = [row for row in order if row % 2 == c]
        assert len(mine) == 3
        for size in (1, 2, 3):
            best = min(
                uncovered([*mine[: size - 1], j], members)
                for j in members
                if j not in mine[: size - 1]
            )
            assert uncovered(mine[:size], members) == pytest.approx(best, rel=1e-4)


def test_classes_take_turns_until_they_are_used_up():
    x, classes = torch.randn(12, 2), torch.tensor([0] * 2 + [1] * 10)
    order = covering_order(x, classes, 8, seed=0)
    assert classes[order[:4]].tolist() == [0, 1, 0, 1]
    assert classes[order].tolist().count(1) == 6
    assert len(order.unique()) == 8


def test_suggestions_are_balanced_over_what_rows_are_not_what_they_are_called():
    x, given, truth = clouds(wrong=18)
    found = reweigh.suggest_clean(x, given, 9)
    assert torch.bincount(truth[found.rows]).tolist() == [3, 3, 3]
    assert torch.equal(reweigh.suggest_clean(x, given, 6).rows, found.rows[:6])
    assert found.gains == ()


def test_the_rehearsed_gain_is_large_where_labels_are_bad_and_nothing_where_they_are_not():
    x, _, truth = clouds(per_class=100)
    x = torch.cat([x, torch.randn(len(x), 8)], 1)  # room to memorise in
    flip = torch.rand(len(x)) < 0.45
    given = torch.where(flip, (truth + torch.randint(1, 3, (len(x),))) % 3, truth)
    order = torch.arange(300).view(3, 100)[:, :8].T.flatten()
    (noisy,) = rehearse(x, given, truth, order, [24], steps=200, seed=0)
    (sound,) = rehearse(x, truth, truth, order, [24], steps=200, seed=0)
    assert noisy.accuracy > 0.95
    assert noisy.gain > 0.15
    assert abs(sound.gain) < 0.05


def test_the_gain_is_rehearsed_for_every_size_asked_for():
    x, given, _ = clouds()
    found = reweigh.suggest_clean(x, given, 12, gains=[6, 12], steps=20).gains
    assert [g.k for g in found] == [6, 12]
    assert found[0].accuracy - found[0].gain == pytest.approx(found[1].accuracy - found[1].gain)
    assert len(reweigh.suggest_clean(x, given, 8, gains=True, steps=2).gains) == 4


def test_a_trained_model_is_asked_for_its_features_and_left_as_it_was():
    x, given, _ = clouds()
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5)).train()
    model[1].eval()
    rows = reweigh.suggest_clean(x, given, 6, model=model).rows
    assert (model.training, model[1].training) == (True, False)
    with torch.no_grad():
        features = model[0](x)
    assert torch.equal(rows, reweigh.suggest_clean(features, given, 6).rows)


def test_the_callers_random_numbers_are_left_alone():
    x, given, _ = clouds()
    before = torch.get_rng_state()
    reweigh.suggest_clean(x, given, 3, gains=[3], steps=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: reweigh.pseudo_clean(x[:, 0], y), BatchError, "one row per example"),
        (lambda x, y: reweigh.pseudo_clean(x, y[:-1]), BatchError, r"expected \(\d+,\)"),
        (lambda x, y: reweigh.pseudo_clean(x / 0, y), BatchError, "NaN or infinity"),
        (lambda x, y: reweigh.pseudo_clean(x, y, per_class=0), SettingError, "per_class=0"),
        (lambda x, y: reweigh.pseudo_clean(x, y, folds=1), SettingError, "folds=1"),
        (lambda x, y: reweigh.suggest_clean(x, y, 0), SettingError, "k=0 rows"),
        (lambda x, y: reweigh.suggest_clean(x, y, 5, gains=[6]), SettingError, "1 to k=5"),
    ],
)
def test_mistakes_are_named(call, error, message):
    x, given, _ = clouds()
    with pytest.raises(error, match=message):
        call(x, given)


def test_the_smallest_data_there_is():
    for n, classes in itertools.product((2, 3), (1, 2)):
        x, y = torch.randn(n, 2), torch.arange(n) % classes
        with pytest.warns(ReweighWarning) if classes > 1 else _nothing():
            assert len(reweigh.pseudo_clean(x, y, per_class=1).rows) == classes


def _nothing():
    import contextlib

    return contextlib.nullcontext()
