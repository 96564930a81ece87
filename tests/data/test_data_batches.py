"""Pairs of batches: full, endless, balanced when asked, exactly resumable, shared among ranks."""

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import data
from reweigh.data.batches.order import Balanced, Shuffled
from reweigh.errors import SettingError

AUGMENTED = data.BatchOptions(
    size=12, clean_size=8, augmentation=data.Augmentation(pad=2), scaling=data.SCALINGS["symmetric"]
)


def part(count: int, classes: int = 5, *, seed: int = 0) -> data.Part:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 8, 8), generator=draw, dtype=torch.uint8)
    return data.whole(data.Examples(images, torch.arange(count) % classes))


def pairs(options: data.BatchOptions = AUGMENTED, seed: int = 0) -> data.PairedBatches:
    return data.PairedBatches(part(50), part(6, 3, seed=1), seed=seed, options=options)


def same(one: data.Pair, other: data.Pair) -> bool:
    flat = torch.utils._pytree.tree_leaves
    return all(torch.equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))


def test_a_loop_reads_well():
    seen = 0
    for pair in pairs().until(7):
        inputs, targets = pair.train
        assert inputs.shape == (12, 3, 8, 8)
        assert inputs.dtype == torch.float32
        assert targets.shape == pair.train_ids.shape == (12,)
        assert pair.clean.inputs.shape == (8, 3, 8, 8)
        seen += 1
    assert seen == 7


def test_ids_point_at_the_examples():
    train = part(50)
    plain = data.PairedBatches(train, train, seed=0, options=data.BatchOptions(size=20))
    pair = next(plain)
    assert torch.equal(pair.train.targets, train.targets[pair.train_ids])
    assert torch.allclose(pair.train.inputs, train.inputs[pair.train_ids].float() / 255)


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_every_epoch_visits_everything_once(count, size, seed):
    order = Shuffled(count, seed, "x")
    visits = np.concatenate([order.read(k * size, (k + 1) * size) for k in range(count * 2)])
    for epoch in range(len(visits) // count):
        assert sorted(visits[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 500), st.integers(0, 99)
)
@settings(max_examples=50, deadline=None)
def test_balanced_order_is_balanced_from_any_place(labels, start, length):
    labels = np.array(labels)
    order = Balanced(labels, 0, "x")
    whole = order.read(0, start + length)
    assert np.array_equal(order.read(start, start + length), whole[start:])
    classes = len(np.unique(labels))
    counts = np.unique(labels[whole[: len(whole) // classes * classes]], return_counts=True)[1]
    assert len(set(counts)) <= 1
    rare = labels == labels[0]
    used = np.bincount(whole, minlength=len(labels))[rare]
    assert used.max() - used.min() <= 1, "members of a class take turns"


@pytest.mark.parametrize("balanced", [False, True])
def test_clean_batches_never_run_dry(balanced):
    options = data.BatchOptions(size=10, clean_size=9, clean_balanced=balanced)
    source = pairs(options)
    for _ in range(20):
        pair = next(source)
        assert len(pair.clean.targets) == 9
        if balanced:
            assert pair.clean.targets.bincount().tolist() == [3, 3, 3]


def test_resampling_makes_rare_classes_common():
    rare = data.whole(
        data.Examples(torch.zeros(200, 1, 2, 2, dtype=torch.uint8), (torch.arange(200) < 2).long())
    )
    options = data.BatchOptions(size=100, clean_size=2, balanced=True)
    assert next(data.PairedBatches(rare, rare, seed=0, options=options)).train.targets.sum() == 50


@given(st.integers(0, 30), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_resumed_run_sees_exactly_what_it_would_have_seen(stop, seed):
    unbroken = pairs(seed=seed)
    for _ in range(stop):
        next(unbroken)
    state = json.loads(json.dumps(unbroken.state_dict()))
    resumed = pairs(seed=seed)
    resumed.load_state_dict(state)
    for _ in range(6):  # 72 of 50 examples: across an epoch's end
        assert same(next(unbroken), next(resumed))


def test_batches_touch_no_global_generator():
    torch.manual_seed(0)
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    source = pairs()
    first = next(source)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(legacy, np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(1)
    assert same(first, next(pairs()))


def test_workers_get_equal_copies():
    source = pairs()
    next(source)
    assert same(next(pickle.loads(pickle.dumps(source))), next(source))


@pytest.mark.parametrize("balanced", [False, True])
def test_ranks_together_see_what_one_process_sees(balanced):
    def options(rank, world):
        return data.BatchOptions(
            size=12, clean_size=8, balanced=balanced, augmentation=data.Augmentation(pad=2),
            rank=rank, world=world,
        )  # fmt: skip

    alone = pairs(options(0, 1))
    ranks = [pairs(options(k, 4)) for k in range(4)]
    for _ in range(6):
        whole = next(alone)
        parts = [next(rank) for rank in ranks]
        assert torch.equal(whole.train.inputs, torch.cat([p.train.inputs for p in parts]))
        assert torch.equal(whole.clean.targets, torch.cat([p.clean.targets for p in parts]))
        assert torch.equal(whole.train_ids, torch.cat([p.train_ids for p in parts]))


def test_evaluation_goes_over_everything_once_in_order():
    everything = part(50)
    batches = list(data.in_order(everything, size=20, options=AUGMENTED))
    assert [len(b.targets) for b in batches] == [20, 20, 10]
    assert torch.equal(torch.cat([b.targets for b in batches]), everything.targets)


def test_known_answers_hold():
    pair = next(pairs())
    assert pair.train_ids.tolist() == KNOWN_TRAIN
    assert pair.clean_ids.tolist() == KNOWN_CLEAN


def test_bad_input_says_what_to_do():
    with pytest.raises(SettingError, match="size is 0"):
        data.BatchOptions(size=0)
    with pytest.raises(SettingError, match="take a multiple of 3"):
        data.BatchOptions(size=100, world=3)
    with pytest.raises(SettingError, match="rank is 2"):
        data.BatchOptions(rank=2, world=2)
    empty = data.Part(*(torch.zeros(0, dtype=torch.int64) for _ in range(4)))
    with pytest.raises(SettingError, match="clean part is empty"):
        data.PairedBatches(part(5), empty, seed=0)
    state = pairs(seed=0).state_dict()
    with pytest.raises(SettingError, match="another seed"):
        pairs(seed=1).load_state_dict(state)


KNOWN_TRAIN = [23, 30, 24, 15, 21, 0, 18, 36, 27, 39, 22, 26]
KNOWN_CLEAN = [5, 3, 4, 2, 1, 0, 4, 2]
