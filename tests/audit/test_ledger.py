"""The ledger says what a naive list of all records would say, in any order and any grouping."""

import itertools
import math
import random

import numpy as np
import pytest
import torch

from reweigh.audit import COLUMNS, Ledger, encode, read_ledger
from reweigh.errors import BatchError, DataError, SettingError

N, HALF_LIFE = 12, 3.0


def batches(count=40, *, seed=0, size=6):
    """Batches with repeated ids, zero weights, and an example (the last) that is never seen."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        ids = torch.from_numpy(rng.integers(0, N - 1, size))
        weights = torch.from_numpy(rng.random(size).astype(np.float32))
        weights[torch.from_numpy(rng.random(size) < 0.4)] = 0
        scores = torch.from_numpy(rng.normal(size=size).astype(np.float32))
        losses = torch.from_numpy(rng.exponential(size=size).astype(np.float32))
        against = torch.from_numpy(rng.random(size) < 0.3)
        found.append((ids, weights, scores, losses, against))
    return found


def recorded(records, **options):
    ledger = Ledger(N, half_life=HALF_LIFE, **options)
    for record in records:
        add(ledger, record)
    return ledger


def add(ledger, record, rows=slice(None)):
    """Some rows of a batch."""
    ids, weights, scores, losses, against = (values[rows] for values in record)
    ledger.record(ids, weights, scores, losses, against=against, shared_by=len(record[0]))


def naive(records):
    """Row by row, from the definition in the module's docstring, in plain Python."""
    table = {name: [] for name in COLUMNS if name not in ("index", "given_label")}
    for example in range(N):
        visits = [
            (t, float(w) * len(ids), float(s), float(f), bool(a))
            for t, (ids, ws, ss, fs, others) in enumerate(records)
            for i, w, s, f, a in zip(ids.tolist(), ws, ss, fs, others, strict=True)
            if i == example
        ]
        table["seen"].append(len(visits))
        if not visits:
            for name in table.keys() - {"seen"}:
                table[name].append(math.nan)
            continue
        recency = [2 ** (t / HALF_LIFE) for t, *_ in visits]
        us = [u for _, u, *_ in visits]
        table["mean_weight"].append(sum(us) / len(us))
        table["zero_share"].append(sum(u == 0 for u in us) / len(us))
        table["average_weight"].append(
            sum(g * u for g, u in zip(recency, us, strict=True)) / sum(recency)
        )
        table["mean_loss"].append(sum(f for *_, f, _ in visits) / len(visits))
        table["against_share"].append(sum(a for *_, a in visits) / len(visits))
        last = [s for t, _, s, *_ in visits if t == visits[-1][0]]
        table["last_score"].append(max(last))
    return table


def assert_states_equal(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name])), name


def test_it_agrees_with_the_definition():
    records = batches()
    assert any(len(set(ids.tolist())) < len(ids) for ids, *_ in records)
    table = recorded(records).table()
    for name, values in naive(records).items():
        grid = 1e-5 if name == "average_weight" else 1e-6
        np.testing.assert_allclose(table[name], values, rtol=grid, atol=grid, err_msg=name)


def test_plain_training_has_weight_one_whatever_the_batch_size():
    ledger = Ledger(8)
    for size in (8, 4, 2):
        ledger.record(torch.arange(size), torch.full((size,), 1 / size))
    assert ledger.table()["mean_weight"].tolist() == [1.0] * 8


def test_a_long_run_does_not_overflow_and_forgets():
    ledger = Ledger(2, half_life=1.0)
    for _ in range(3000):  # 2^3000 is far beyond float64
        ledger.record(torch.tensor([0, 1]), torch.tensor([0.25, 0.75]))
    for _ in range(30):
        ledger.record(torch.tensor([0]), torch.tensor([1.0]))
    table = ledger.table()
    np.testing.assert_allclose(table["average_weight"], [1.0, 1.5], atol=1e-6)
    np.testing.assert_allclose(table["mean_weight"], [(0.5 * 3000 + 30) / 3030, 1.5], atol=1e-6)


def test_an_example_not_seen_for_ages_keeps_its_mean():
    ledger = Ledger(2, half_life=1.0)
    ledger.record(torch.tensor([0, 1]), torch.tensor([0.25, 0.75]))
    for _ in range(4000):
        ledger.record(torch.tensor([0]), torch.tensor([1.0]))
    assert ledger.table()["average_weight"][1] == 1.5


def shared_out(records, ranks=3):
    """One ledger of all records, and one of each process that had its share of every batch."""
    whole = Ledger(N, half_life=HALF_LIFE)
    parts = [Ledger(N, half_life=HALF_LIFE) for _ in range(ranks)]
    for record in records:
        add(whole, record)
        for rank, part in enumerate(parts):
            add(part, record, slice(rank, None, ranks))
    return whole, parts


def raw(ledger):
    """Every byte of it."""
    state = ledger.state_dict()
    return [torch.as_tensor(state[name]).numpy().tobytes() for name in sorted(state)]


def test_processes_merge_to_the_bytes_of_one_in_any_order_and_grouping():
    # 400 records are 133 half-lives: many times what is kept of the recent past.
    whole, parts = shared_out(batches(400, size=12))
    assert any(len(set(ids.tolist())) < len(ids) for ids, *_ in batches(400, size=12))
    for order in itertools.permutations(parts):
        first, second, third = order
        for merged in (first.merge(second).merge(third), first.merge(second.merge(third))):
            assert raw(merged) == raw(whole)
            assert encode(merged) == encode(whole)


def test_a_run_merged_in_the_middle_ends_with_the_same_bytes():
    records = batches(200)
    whole, _ = shared_out(records)
    _, (first, second, third) = shared_out(records[:90])
    merged = first.merge(second).merge(third)
    going_on = [merged, merged.like(), merged.like()]  # one process goes on with it
    for record in records[90:]:
        for rank, part in enumerate(going_on):
            add(part, record, slice(rank, None, 3))
    assert raw(going_on[2].merge(going_on[0]).merge(going_on[1])) == raw(whole)


def test_a_process_that_saw_none_of_an_example_changes_nothing():
    whole, _ = shared_out(batches(50))
    assert raw(whole.merge(whole.like())) == raw(whole.like().merge(whole)) == raw(whole)


def test_joining_states_is_merging_them_all():
    whole, parts = shared_out(batches(60))
    assert raw(parts[1].joined(part.state_dict() for part in parts)) == raw(whole)


def test_merging_looks_across_rescaled_sums():
    short, long = Ledger(1, half_life=1.0), Ledger(1, half_life=1.0)
    for _ in range(5):
        short.record(torch.tensor([0]), torch.tensor([0.0]))
    for _ in range(1500):
        long.record(torch.tensor([0]), torch.tensor([1.0]))
    for merged in (short.merge(long), long.merge(short)):
        assert merged.table()["average_weight"][0] == 1.0
        assert merged.table()["seen"][0] == 1505


def test_merging_leaves_both_as_they_were_and_refuses_strangers():
    one, other = recorded(batches(seed=1)), recorded(batches(seed=2))
    before = recorded(batches(seed=1)), recorded(batches(seed=2))
    one.merge(other)
    assert_states_equal(one, before[0])
    assert_states_equal(other, before[1])
    with pytest.raises(SettingError, match="same run"):
        one.merge(Ledger(N + 1, half_life=HALF_LIFE))


def test_the_order_of_records_changes_no_bit_of_the_sums():
    records = batches()
    shuffled = random.Random(0).sample(records, len(records))
    one, other = recorded(records).table(), recorded(shuffled).table()
    for name in (
        "seen",
        "mean_weight",
        "zero_share",
        "mean_loss",
        "against_share",
    ):  # the others look at the time
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_it_goes_on_from_a_saved_state():
    records = batches()
    half = recorded(records[:17])
    resumed = Ledger(N, half_life=HALF_LIFE)
    resumed.load_state_dict(half.state_dict())
    for record in records[17:]:
        add(resumed, record)
    assert_states_equal(resumed, recorded(records))


def test_losses_and_scores_are_optional():
    ledger = Ledger(2)
    ledger.record(torch.tensor([0]), torch.tensor([1.0]))
    assert np.isnan(ledger.table()["mean_loss"]).all()
    assert np.isnan(ledger.table()["last_score"]).all()
    ledger.record(torch.tensor([0]), torch.tensor([1.0]), losses=torch.tensor([3.0]))
    assert ledger.table()["mean_loss"][0] == 3.0


def test_nobody_knows_whether_a_model_was_against_a_label_once_a_record_did_not_say():
    ledger = Ledger(3)
    pair, halves = torch.tensor([0, 1]), torch.tensor([0.5, 0.5])
    ledger.record(pair, halves, against=torch.tensor([True, False]))
    np.testing.assert_array_equal(ledger.table()["against_share"], [1.0, 0.0, np.nan])
    ledger.record(torch.tensor([1]), torch.tensor([1.0]))
    np.testing.assert_array_equal(ledger.table()["against_share"], [1.0, np.nan, np.nan])
    ledger.record(torch.tensor([0, 1]), halves, against=torch.tensor([False, True]))
    np.testing.assert_array_equal(ledger.table()["against_share"], [0.5, np.nan, np.nan])


def test_states_and_files_of_earlier_versions_do_not_know_it_and_are_read(tmp_path):
    ledger = recorded(batches())
    state = ledger.state_dict()
    state["totals"] = torch.cat([state["totals"][:, :7], state["totals"][:, 8:]], dim=1)
    old = Ledger(N, half_life=HALF_LIFE)
    old.load_state_dict(state)
    path = tmp_path / "weights.parquet"
    import pandas

    pandas.DataFrame(ledger.table()).drop(columns="against_share").to_parquet(path)
    for table in (old.table(), read_ledger(path).table()):
        assert np.isnan(table["against_share"]).all()
        for name in set(COLUMNS) - {"given_label", "against_share"}:
            np.testing.assert_array_equal(table[name], ledger.table()[name], err_msg=name)


def test_the_parquet_file_holds_the_table(tmp_path):
    ledger, labels = recorded(batches()), torch.arange(N) % 3
    path = tmp_path / "weights.parquet"
    path.write_bytes(encode(ledger, labels))
    import pandas

    frame = pandas.read_parquet(path)
    assert tuple(frame.columns) == COLUMNS
    assert frame["seen"].dtype == np.int64
    for name, values in ledger.table(labels).items():
        np.testing.assert_array_equal(frame[name], values, err_msg=name)
    back = read_ledger(path).table()
    for name, values in ledger.table().items():
        np.testing.assert_array_equal(back[name], values, err_msg=name)


def test_bad_input_is_refused(tmp_path):
    ledger = Ledger(3)
    with pytest.raises(BatchError, match="one id and one weight"):
        ledger.record(torch.tensor([0, 1]), torch.tensor([1.0]))
    with pytest.raises(SettingError, match="same training set"):
        ledger.load_state_dict(Ledger(4).state_dict())
    with pytest.raises(SettingError, match="another version"):
        ledger.load_state_dict({"totals": torch.zeros(3, 7)})
    with pytest.raises(SettingError, match="1 or more"):
        Ledger(0)
    (tmp_path / "weights.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read"):
        read_ledger(tmp_path / "weights.parquet")
