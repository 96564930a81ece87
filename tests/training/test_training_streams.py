"""`fit` on shards: the same loop, ledger and run folder, with the training set left on disk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("accelerate")
pytest.importorskip("pyarrow")

from reweigh import data
from reweigh.app import audit as auditing
from reweigh.audit import Ledger
from reweigh.errors import DataError, Interrupted, SettingError
from reweigh.training import fit
from support.runs import assert_same, digits_task, tiny, tiny_config


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """The digits' train part in five uneven shards; their true labels are known."""
    folder = tmp_path_factory.mktemp("digits")
    whole = digits_task()
    train = whole.train
    edges = [0, 400, 410, 900, 901, len(train)]
    for k, (low, high) in enumerate(itertools.pairwise(edges)):
        np.save(folder / f"part-{k}.image.npy", train.inputs[train.ids[low:high]].numpy())
        np.save(folder / f"part-{k}.label.npy", train.targets[low:high].numpy())
    part = data.stream_part(folder, data.Fields("image", "label"), truth=train.truth, buffer=400)
    return data.StreamedTask(part, whole.clean, whole.test, whole.classes, whole.peak)


def with_workers(task, workers):
    from dataclasses import replace

    return replace(task, train=replace(task.train, workers=workers))


def test_the_part_in_shards_is_the_part_in_memory(task):
    memory = digits_task().train
    assert len(task.train) == len(memory)
    assert torch.equal(task.train.targets, memory.targets)
    assert torch.equal(task.train.changed, memory.changed)
    for mine, theirs in zip(data.in_order(task.train), data.in_order(memory), strict=True):
        assert torch.equal(mine.inputs, theirs.inputs)
        assert torch.equal(mine.targets, theirs.targets)
    shares = [task.train.share(rank, 3) for rank in range(3)]
    joined = torch.cat([b.inputs for s in shares for b in data.in_order(s)])
    assert torch.equal(joined, torch.cat([b.inputs for b in data.in_order(memory)]))
    probe, whole = task.train.probe(100), memory.inputs[memory.ids]
    at = [next(i for i, x in enumerate(whole) if torch.equal(x, image)) for image in probe.inputs]
    assert len(set(at)) == len(probe) == 100
    assert torch.equal(probe.targets, memory.targets[at])
    assert max(at) > len(memory) * 0.9


def test_a_run_counts_what_it_streamed_by_id(task):
    config = tiny_config(steps=60, checkpoint_every=0, evaluate_every=0)
    outcome = fit(tiny, task, config)
    expected = Ledger(len(task.train))
    stream = task.train.stream(size=50, seed=config.seed, rank=0, world=1)
    for batch in itertools.islice(stream.batches(), 60):
        expected.record(batch.ids, torch.full((50,), 0.02))
    seen = outcome.ledger.table()["seen"]
    np.testing.assert_array_equal(seen, expected.table()["seen"])
    assert seen.sum() == 60 * 50
    # The judgement at the end is of all examples.
    confusion = fit(tiny, task, config).metrics
    assert confusion["train_accuracy"] == outcome.metrics["train_accuracy"]


def test_wrong_labels_are_found_in_shards(task):
    config = tiny_config(steps=150, drops=(), checkpoint_every=0, evaluate_every=0)
    outcome = fit(tiny, task, config)
    table, wrong = outcome.ledger.table(), task.train.changed.numpy()
    assert table["mean_weight"][~wrong].mean() > 1.5 * table["mean_weight"][wrong].mean()
    ranking = auditing.rank(task.train, outcome, config.batch)
    assert sorted(ranking.order) == list(range(len(wrong)))
    assert wrong[ranking.order[:100]].mean() > 0.8 > 2 * wrong[ranking.order[-100:]].mean()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stopped_run_ends_with_the_bytes_of_one_that_was_not(task, tmp_path, workers):
    import signal

    def stop(now):
        if now.step == 7:
            signal.raise_signal(signal.SIGINT)

    config = tiny_config(steps=40)  # more than an epoch
    whole = fit(tiny, task, config, out=tmp_path / "whole")
    other = with_workers(task, workers)
    with pytest.raises(Interrupted):
        fit(tiny, other, config, out=tmp_path / "cut", progress=stop)
    assert_same(fit(tiny, other, config, out=tmp_path / "cut"), whole)
    for name in ("weights.parquet", "metrics.jsonl", "model.safetensors", "config.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_processes_share_the_pairs_of_one(task):
    def pairs(rank, world):
        options = data.BatchOptions(
            size=48, clean_size=20, rank=rank, world=world, peak=16,
            augmentation=data.Augmentation(pad=1),
        )  # fmt: skip
        found = data.PairedBatches(task.train, task.clean, seed=1, options=options)
        return list(itertools.islice(found, 4))

    for alone, first, second in zip(pairs(0, 1), pairs(0, 2), pairs(1, 2), strict=True):
        assert torch.equal(alone.train.inputs, torch.cat([first.train.inputs, second.train.inputs]))
        assert torch.equal(alone.train_ids, torch.cat([first.train_ids, second.train_ids]))
        assert torch.equal(alone.train.targets, task.train.targets[alone.train_ids])


@pytest.mark.parametrize("method", ["glc", "clean_only", "co_teaching", "uniform+ft"])
def test_methods_that_ask_for_labels_baselines_or_clean_batches_run(task, method):
    outcome = fit(tiny, task, tiny_config(method, steps=4, pretrain_steps=3))
    assert 0 <= outcome.test_accuracy <= 1


def test_what_a_stream_cannot_do_is_refused(task, tmp_path):
    with pytest.raises(SettingError, match="balanced batches were asked of a stream"):
        fit(tiny, task, tiny_config("resample", steps=2))
    config = tiny_config(steps=4)
    fit(tiny, task, config, out=tmp_path)
    with pytest.raises(SettingError, match="other data"):
        fit(tiny, digits_task(), config, out=tmp_path)
    with pytest.raises(SettingError, match="expected one a row"):
        data.stream_part(task.train.shards, task.train.fields, truth=torch.zeros(3))


def test_a_shard_that_changed_is_named(tmp_path):
    for name, value in (("x", np.zeros((30, 64), np.float32)), ("y", np.arange(30) % 10)):
        np.save(tmp_path / f"a.{name}.npy", value)
    whole = digits_task()
    part = data.stream_part(tmp_path, data.Fields("x", "y"))
    for name, value in (("x", np.zeros((20, 64), np.float32)), ("y", np.arange(20) % 10)):
        np.save(tmp_path / f"a.{name}.npy", value)
    with pytest.raises(DataError, match=r"a has fewer rows than were counted \(30\)"):
        fit(tiny, data.StreamedTask(part, whole.clean, whole.test, whole.classes), tiny_config(batch=data.BatchOptions(20, 20)))  # fmt: skip
