"""Corruptions flip what they say, as often as they say, and own up to it."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import data
from reweigh.data.tasks.splits import noisy_imbalance
from reweigh.errors import DataError, SettingError, UnknownNameError

NAMES = sorted(data.CORRUPTIONS)
labels_and_classes = st.integers(2, 12).flatmap(
    lambda c: st.tuples(
        st.lists(st.integers(0, c - 1), min_size=1, max_size=200).map(torch.tensor), st.just(c)
    )
)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**32)


def rounded(value: float) -> int:
    return int(value + 0.5)


@pytest.mark.parametrize("name", NAMES)
@given(labels_and_classes, rates, seeds)
@settings(max_examples=50, deadline=None)
def test_every_corruption_keeps_its_word(name, given_labels, rate, seed):
    labels, classes = given_labels
    before = labels.clone()
    result = data.corrupt(name, labels, rate=rate, classes=classes, seed=seed)
    again = data.corrupt(name, labels, rate=rate, classes=classes, seed=seed)
    assert torch.equal(labels, before), "the input is left alone"
    assert torch.equal(result.labels, again.labels), "the same seed gives the same labels"
    assert torch.equal(result.changed, result.labels != before), "what changed is told"
    assert ((result.labels >= 0) & (result.labels < classes)).all()
    eligible = int((before != 0).sum()) if name == "background_flip" else len(before)
    assert int(result.changed.sum()) == rounded(rate * eligible), "the rate is exact"


@given(labels_and_classes, seeds)
@settings(deadline=None)
def test_rate_zero_is_the_identity(given_labels, seed):
    labels, classes = given_labels
    for name in ("none", *NAMES):
        result = data.corrupt(name, labels, rate=0.0, classes=classes, seed=seed)
        assert torch.equal(result.labels, labels)
        assert not result.changed.any()
    identity = data.transition(labels, torch.eye(classes), seed=seed)
    assert torch.equal(identity.labels, labels)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_a_higher_rate_flips_more_of_the_same(seed):
    labels = torch.arange(500) % 10
    low = data.uniform_flip(labels, rate=0.2, classes=10, seed=seed)
    high = data.uniform_flip(labels, rate=0.5, classes=10, seed=seed)
    assert (high.changed | ~low.changed).all()


def test_uniform_flip_reaches_every_other_class_alike():
    labels = torch.zeros(90_000, dtype=torch.int64)
    counts = data.uniform_flip(labels, rate=1.0, classes=10, seed=0).labels.bincount(minlength=10)
    assert counts[0] == 0
    assert (counts[1:] - 10_000).abs().max() < 500


def test_the_published_codes_uniform_flip_hits_36_of_40_percent_and_spares_the_last_class():
    labels = torch.arange(50_000) % 10
    result = data.uniform_flip(labels, rate=0.4, classes=10, seed=0, variant="published_code")
    assert result.changed.double().mean().item() == pytest.approx(0.36, abs=0.01)
    assert not (result.labels[result.changed] == 9).any()


def test_background_flip_only_goes_to_the_background():
    labels = torch.arange(50_000) % 10
    result = data.background_flip(labels, rate=0.4, classes=10, seed=0, background=3)
    assert (result.labels[result.changed] == 3).all()
    assert not result.changed[labels == 3].any()
    assert int(result.changed.sum()) == 18_000


def test_pair_flip_goes_to_the_next_class():
    labels = torch.arange(1000) % 10
    result = data.pair_flip(labels, rate=0.45, classes=10, seed=0)
    assert torch.equal(result.labels[result.changed], (labels[result.changed] + 1) % 10)


def test_a_transition_matrix_is_followed():
    matrix = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
    labels = torch.arange(90_000) % 3
    result = data.transition(labels, matrix, seed=0)
    for row in range(3):
        share = result.labels[labels == row].bincount(minlength=3) / 30_000
        assert torch.allclose(share, matrix[row], atol=0.01)
        assert (share[matrix[row] == 0] == 0).all()


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), seeds)
@settings(max_examples=50, deadline=None)
def test_a_transition_never_reaches_a_class_of_probability_zero(weights, seed):
    row = torch.tensor([*weights, 0.0], dtype=torch.float64) + torch.tensor([1e-3, 0, 0, 0, 0])
    matrix = (row / row.sum()).expand(5, 5)
    result = data.transition(torch.zeros(200, dtype=torch.int64), matrix, seed=seed)
    assert (result.labels < 4).all()


def test_imbalance_and_noise_combine():
    labels = torch.arange(1000) % 10
    result = noisy_imbalance(
        labels, {3: 90, 5: 10}, corruption="background_flip", rate=0.5, classes=10, seed=0,
        background=3,
    )  # fmt: skip
    assert len(result.ids) == 100
    assert result.labels.bincount(minlength=10)[[3, 5]].tolist() == [95, 5]
    assert torch.equal(result.changed, result.labels != labels[result.ids])


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("uniform_flip", "4b37fd59f186252e37d55de5d41292efc90b15b94f95b30b2da386b37c18e167"),
        ("background_flip", "1d9270355115f19704aa05e5bb33c2f35b7744c9d53d1a49c594f24e1c5281da"),
        ("pair_flip", "fbca8db7ae7258b728945592a5f0bc2125980dc093149d5494b03188f2505413"),
    ],
)
def test_known_answers_hold(name, digest):
    labels = torch.arange(50_000) % 10
    result = data.corrupt(name, labels, rate=0.4, classes=10, seed=0)
    assert hashlib.sha256(result.labels.numpy().astype("<i8").tobytes()).hexdigest() == digest


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", NAMES)
def test_a_rate_outside_its_range_is_refused(name, rate):
    with pytest.raises(SettingError, match="expected a share from 0 to 1"):
        data.corrupt(name, torch.tensor([0, 1]), rate=rate, classes=2, seed=0)


def test_bad_input_says_what_to_do():
    labels = torch.tensor([0, 1])
    with pytest.raises(UnknownNameError, match="did you mean 'uniform_flip'"):
        data.corrupt("uniformflip", labels, rate=0.1, classes=2, seed=0)
    with pytest.raises(UnknownNameError, match="did you mean 'published_code'"):
        data.uniform_flip(labels, rate=0.1, classes=2, seed=0, variant="publishd_code")
    with pytest.raises(SettingError, match="background class is 2"):
        data.background_flip(labels, rate=0.1, classes=2, seed=0, background=2)
    with pytest.raises(DataError, match="run from 0 to 5"):
        data.pair_flip(torch.tensor([0, 5]), rate=0.1, classes=2, seed=0)
    with pytest.raises(DataError, match="one whole number"):
        data.pair_flip(torch.rand(3), rate=0.1, classes=2, seed=0)
    with pytest.raises(SettingError, match="row 1 sums to"):
        data.transition(labels, torch.tensor([[1.0, 0.0], [0.5, 0.4]]), seed=0)
    with pytest.raises(SettingError, match="square"):
        data.transition(labels, torch.ones(2, 3), seed=0)
    with pytest.raises(SettingError, match="two classes"):
        data.uniform_flip(torch.tensor([0]), rate=1.0, classes=1, seed=0)
