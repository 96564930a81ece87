"""Streams: every example once an epoch, whoever reads, in an order that anyone can work out."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader

pytest.importorskip("pyarrow")
pytest.importorskip("PIL")

from reweigh.data import Fields, Stream, open_shards
from reweigh.errors import DataError, SettingError
from reweigh.rng import Draws
from support import shard_files
from support.shard_files import FIELDS, UNEVEN

N = sum(UNEVEN)
# More workers than this machine has cores is what we ask for.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    root = tmp_path_factory.mktemp("shards")
    return {kind: open_shards(shard_files.write(root / kind, kind)) for kind in FIELDS}


def made(shards, kind="parquet", **options):
    return Stream(shards[kind], FIELDS[kind], **{"size": 16, "seed": 3, "buffer": 64, **options})


def ids(batches):
    return [batch.ids.tolist() for batch in batches]


@pytest.mark.parametrize("kind", FIELDS)
def test_an_epoch_has_every_example_once_with_its_own_id(shards, kind):
    seen = []
    for batch in made(shards, kind).epoch(0):
        assert torch.equal(shard_files.numbers(batch.inputs), batch.ids)
        assert torch.equal(batch.targets, batch.ids % 3)
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(N))


@pytest.mark.parametrize("kind", FIELDS)
def test_every_format_gives_the_same_order(shards, kind):
    assert ids(made(shards, kind).epoch(1)) == ids(made(shards).epoch(1))


@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("size", [30, 90])
def test_ranks_share_an_epoch_without_overlap_or_loss(shards, world, size):
    size = -(-size // world) * world
    parts = [ids(made(shards, size=size, rank=r, world=world).epoch(4)) for r in range(world)]
    seen = Counter(itertools.chain(*itertools.chain(*parts)))
    assert seen == Counter(range(N))


@pytest.mark.parametrize(("world", "workers"), [(1, 1), (1, 3), (1, 9), (2, 2), (2, 5)])
def test_ranks_and_workers_share_an_epoch_without_overlap_or_loss(shards, world, workers):
    seen = Counter()
    for rank in range(world):
        stream = made(shards, rank=rank, world=world)
        found = ids(stream.epoch(1, workers=workers))
        assert found == ids(stream.epoch(1))
        seen.update(itertools.chain(*found))
    assert seen == Counter(range(N))


def test_one_shard_feeds_many_readers(tmp_path):
    one = {"npy": open_shards(shard_files.write(tmp_path / "one", "npy", (50,)))}
    seen = Counter()
    for rank in range(4):
        for batch in made(one, "npy", rank=rank, world=4).epoch(0, workers=2):
            seen.update(batch.ids.tolist())
    assert seen == Counter(range(50))


@pytest.mark.parametrize("workers", [0, 2, 11])
def test_a_loader_of_ones_own_gives_every_example_once(shards, workers):
    stream = made(shards)
    for epoch in (0, 5):
        stream.set_epoch(epoch)
        found = ids(DataLoader(stream, batch_size=None, num_workers=workers))
        assert Counter(itertools.chain(*found)) == Counter(range(N))
        assert sorted(itertools.chain(*found[: max(1, min(workers, 8))])) == sorted(
            ids(stream.epoch(epoch))[0]
        )


@pytest.mark.parametrize("world", [2, 4, 8])
def test_a_batch_is_the_same_for_one_process_and_for_many(shards, world):
    alone = list(itertools.islice(made(shards).batches(), 20))
    parts = [
        list(itertools.islice(made(shards, rank=r, world=world).batches(), 20))
        for r in range(world)
    ]
    for whole, *shares in zip(alone, *parts, strict=True):
        assert whole.ids.tolist() == torch.cat([share.ids for share in shares]).tolist()
        assert len({len(share.ids) for share in shares}) == 1


def test_batches_are_full_and_epochs_follow_without_a_gap(shards):
    found = ids(itertools.islice(made(shards).batches(), 5 * N))
    assert {len(batch) for batch in found} == {16}
    seen = Counter(itertools.chain(*found))
    assert set(seen) == set(range(N))
    # A lane may be a row ahead of another after each of the 80 epochs.
    assert max(seen.values()) - min(seen.values()) <= math.ceil(80 * 8 / N) + 1


def test_epochs_and_seeds_differ_and_repeat(shards):
    orders = [ids(made(shards, seed=seed).epoch(e)) for seed in (0, 1) for e in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    assert ids(made(shards, seed=1).epoch(1)) == orders[3]


@pytest.mark.parametrize("step", [0, 1, 6, 7, 8, 23])
@pytest.mark.parametrize("workers", [0, 2])
def test_it_goes_on_from_any_step(shards, step, workers):
    stream = made(shards, buffer=40)
    whole = ids(itertools.islice(stream.batches(), 26))
    rest = stream.batches(step, workers=workers)
    assert ids(itertools.islice(rest, 26 - step)) == whole[step:]
    if step < stream.steps:
        assert ids(stream.epoch(2, step=step, workers=workers)) == ids(stream.epoch(2))[step:]


def by_definition(rows, *, size, lanes, buffer, seed, epoch):
    """The batches of an epoch from the docstring of `lanes`, with everything in lists."""
    starts = [sum(rows[:k]) for k in range(len(rows))]
    order = []
    for shard in Draws(seed, "shards", epoch).permutation(len(rows)):
        order += range(starts[shard], starts[shard] + rows[shard])
    queues, shares, at = [], [], 0
    for lane in range(lanes):
        shares.append(size * (lane + 1) // lanes - size * lane // lanes)
        end = sum(shares) * len(order) // size
        mine, queue = order[at:end], []
        for block, first in enumerate(range(0, len(mine), buffer)):
            held = mine[first : first + buffer]
            queue += [held[k] for k in Draws(seed, "stream", epoch, lane, block).permutation(len(held))]  # fmt: skip
        queues.append(queue)
        at = end
    found = []
    while any(queues):
        batch = []
        for lane, share in enumerate(shares):
            batch += queues[lane][:share]
            queues[lane] = queues[lane][share:]
        found.append(batch)
    return found


@pytest.mark.parametrize(("size", "lanes", "buffer"), [(16, 8, 64), (10, 3, 12), (113, 1, 4), (7, 7, 7)])  # fmt: skip
def test_the_order_is_the_one_defined(shards, size, lanes, buffer):
    stream = made(shards, size=size, lanes=lanes, buffer=buffer)
    expected = by_definition(
        UNEVEN, size=size, lanes=lanes, buffer=buffer // lanes, seed=3, epoch=2
    )
    assert ids(stream.epoch(2)) == expected
    assert stream.steps == len(expected)


def test_the_rank_is_that_of_torch_distributed(shards, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert ids(made(shards).epoch(0)) == ids(made(shards, rank=1, world=2).epoch(0))


def test_no_number_is_taken_from_the_global_generator(shards):
    before = torch.get_rng_state()
    list(made(shards).epoch(0, workers=1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"rank": 2, "world": 2}, "expected 0 ... 1"),
        ({"lanes": 3, "rank": 0, "world": 2}, "multiples of 2"),
        ({"size": 15, "rank": 0, "world": 2}, "multiples of 2"),
        ({"size": 4}, "fewer lanes"),
        ({"size": 200}, "113 rows; take a smaller batch"),
        ({"lanes": 0}, "lanes is 0"),
    ],
)
def test_impossible_settings_are_refused(shards, options, part):
    with pytest.raises(SettingError, match=part):
        made(shards, **options)


def test_a_field_that_is_not_there_is_named(shards):
    with pytest.raises(DataError, match=r"unknown field 'lable'; did you mean 'label'"):
        Stream(shards["npy"], Fields("x", "lable"))
