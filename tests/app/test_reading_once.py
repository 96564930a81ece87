"""A run reads a table once and predicts each row once, and ends with the same files if it is stopped."""

from __future__ import annotations

import pytest

from reweigh.app import Options, Signs, final_outputs, kept_table, train, training_run
from reweigh.tables import reader
from support.own_data import write_tables

SAME = ("audit.parquet", "suspects.parquet", "summary.json", "model.safetensors", "metrics.jsonl")


@pytest.fixture
def options(tmp_path):
    write_tables(tmp_path, test=60)
    return Options(
        data=tmp_path / "rows.csv", clean=tmp_path / "checked.csv", test=tmp_path / "test.csv",
        target="label", method="reweigh", steps=12, compare=True, threads=1,
    )  # fmt: skip


def read_files(monkeypatch):
    """The names of tables, one for each time that one is read."""
    names, read = [], reader._read_csv

    def counted(table, columns):
        names.append(table.path.name)
        return read(table, columns)

    monkeypatch.setattr(reader, "_read_csv", counted)
    return names


def test_each_table_is_read_once(options, tmp_path, monkeypatch):
    names = read_files(monkeypatch)
    train(options, tmp_path / "run")
    assert sorted(names) == ["checked.csv", "rows.csv", "test.csv"]


def test_a_table_that_does_not_fit_is_read_again_to_the_same_run(options, tmp_path, monkeypatch):
    train(options, tmp_path / "run")
    monkeypatch.setattr(kept_table, "KEPT_BYTES", 100)
    names = read_files(monkeypatch)
    train(options, tmp_path / "large")
    assert names.count("rows.csv") == 3
    for name in SAME:
        assert (tmp_path / "large" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_each_row_is_predicted_once_also_if_the_run_is_stopped_after_training(
    options, tmp_path, monkeypatch
):
    again = []
    predict = final_outputs.outputs

    def counted(model, part, *arguments, **more):
        again.append(len(part))
        return predict(model, part, *arguments, **more)

    monkeypatch.setattr(final_outputs, "outputs", counted)
    train(options, tmp_path / "run")
    assert again == []

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "rank", stop)
        with pytest.raises(KeyboardInterrupt):
            train(options, tmp_path / "stopped")
    train(options, tmp_path / "stopped", Signs())
    assert again == [60, 60, 60, 300]  # the finished trainings are read back: predicted now
    for name in SAME:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
