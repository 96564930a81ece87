"""A folder of shards trains as the same rows in one file do; lists and corrections name the shard."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import reweigh
from reweigh.app import Options, train, write_audit_list, write_predictions
from reweigh.cli import main
from reweigh.errors import DataError
from reweigh.review import export_run
from reweigh.runs import open_run
from reweigh.tables import image_at
from support.image_tables import as_table
from support.own_data import images, table

QUICK = {"steps": 4, "hidden": 4, "threads": 1, "method": "reweigh", "target": "label"}
CUTS = (0, 30, 31, 80)
ENDINGS = ("csv", "parquet", "jsonl")


def save(frame, path):
    if path.suffix == ".jsonl":
        lines = frame.to_json(orient="records", lines=True, force_ascii=False)
        path.write_text(lines.rstrip("\n"), encoding="utf-8")
    elif path.suffix == ".csv":  # no line end after the last row
        path.write_text(frame.to_csv(index=False).rstrip("\n"), encoding="utf-8")
    else:
        frame.to_parquet(path, index=False)


@pytest.fixture(scope="module", params=ENDINGS)
def both(request, tmp_path_factory):
    """A run on one file, and one on three shards of the same rows."""
    home, ending = tmp_path_factory.mktemp(request.param), request.param
    rows = table(80, 0, noise=0.3)[0]
    save(rows, home / f"rows.{ending}")
    save(table(20, 1)[0], home / f"checked.{ending}")
    (home / "shards").mkdir()
    for k, (first, last) in enumerate(pairwise(CUTS)):
        save(rows[first:last], home / "shards" / f"rows-{k}.{ending}")
    clean = home / f"checked.{ending}"
    for run, data in (("whole", home / f"rows.{ending}"), ("cut", home / "shards")):
        train(Options(data=data, clean=clean, **QUICK), home / run)
    return home, ending, rows


def test_the_run_is_the_same(both):
    home, ending, _ = both
    whole, cut = (pd.read_parquet(home / run / "audit.parquet") for run in ("whole", "cut"))
    pd.testing.assert_frame_equal(whole, cut)
    ours = reweigh.load(home / "cut").predict_proba(home / "shards")
    theirs = reweigh.load(home / "whole").predict_proba(home / f"rows.{ending}")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # a shard of one row is a batch of one


def test_the_list_names_shard_and_row(both):
    home, ending, rows = both
    write_audit_list(home / "cut", home / "audit.csv", force=True)
    listed = pd.read_csv(home / "audit.csv")
    assert listed.columns[:4].tolist() == ["index", "file", "row", "given_label"]
    starts = {f"rows-{k}.{ending}": first for k, first in enumerate(CUTS[:-1])}
    assert (listed["file"].map(starts) + listed["row"]).tolist() == listed["index"].tolist()
    assert rows["label"][listed["index"]].tolist() == listed["given_label"].tolist()
    assert set(listed["file"]) == set(starts)


def test_corrections_are_one_file_as_that_of_the_whole(both):
    """A row of the second shard and one of the third change, another is dropped."""
    home, ending, rows = both
    new = {30: "eel", 40: "dog"}
    for run in ("whole", "cut"):
        decided = [
            {"at": "2026-01-01T00:00:00Z", "index": i, "action": "relabel", "label": name}
            for i, name in new.items()
        ]
        decided.append({"at": "2026-01-01T00:00:00Z", "index": 79, "action": "drop"})
        path = home / run / "decisions.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in decided))
        export_run(open_run(home / run))
    whole, cut = (home / run / f"corrected.{ending}" for run in ("whole", "cut"))
    if ending == "parquet":
        assert pq.read_table(cut).equals(pq.read_table(whole))
        labels = pq.read_table(cut).column("label").to_pylist()
    else:
        assert cut.read_text().splitlines() == whole.read_text().splitlines()
        labels = (pd.read_csv if ending == "csv" else read_lines)(cut)["label"].tolist()
    assert labels == [new.get(i, name) for i, name in enumerate(rows["label"])][:79]


def read_lines(path):
    return pd.read_json(path, lines=True)


def test_no_shard_is_written_over(both):
    home, ending, _ = both
    why = "unknown ending" if ending == "jsonl" else "is the data of the run"
    with pytest.raises(DataError, match=why):
        write_audit_list(home / "cut", home / "shards" / f"rows-1.{ending}", force=True)


def test_corrections_of_other_shards_are_refused(both, tmp_path):
    home, ending, rows = both
    save(rows[:3], home / "shards" / f"rows-9.{ending}")
    try:
        with pytest.raises(DataError, match="not the shards any more"):
            export_run(open_run(home / "cut"))
    finally:
        (home / "shards" / f"rows-9.{ending}").unlink()


def called(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_a_pattern_on_the_command_line(both, tmp_path, capsys):
    home, ending, _ = both
    pattern = str(home / "shards" / f"rows-[01].{ending}")
    asked = ["--clean", str(home / f"checked.{ending}"), "--target", "label", "--steps", "4"]
    run = str(tmp_path / "run")
    called("train", "--data", pattern, *asked, "--method", "reweigh", "--out", run)
    assert "2 shards, " in capsys.readouterr().err
    assert open_run(tmp_path / "run").source.rows == 31
    called("audit", run, "--show", "3")
    assert f"rows-0.{ending}" in capsys.readouterr().out
    said = str(tmp_path / "said.csv")
    called("predict", run, "--data", pattern, "--out", said)
    assert len(pd.read_csv(said)) == 31


def test_a_pattern_without_quotes_is_told_about_them(both, capsys):
    """The shell has then put all names on the command line."""
    home, ending, _ = both
    names = [str(home / "shards" / f"rows-{k}.{ending}") for k in range(2)]
    with pytest.raises(SystemExit) as ended:
        main(["train", "--data", *names, "--target", "label"])
    assert ended.value.code == 2
    assert "has to be in quotes" in capsys.readouterr().err


def test_shards_of_images_train_as_one_file(tmp_path):
    """As image sets of Hugging Face come; an image keeps its name, and is found in its shard."""
    images(tmp_path / "rows", 40, 0, noise=0.3)
    images(tmp_path / "checked", 16, 1)
    rows, checked = as_table(tmp_path / "rows"), as_table(tmp_path / "checked")
    pq.write_table(rows, tmp_path / "rows.parquet")
    pq.write_table(checked, tmp_path / "checked.parquet")
    (tmp_path / "set" / "data").mkdir(parents=True)
    for k, part in enumerate((rows[:17], rows[17:])):
        pq.write_table(part, tmp_path / "set" / "data" / f"train-0000{k}-of-00002.parquet")
    quick = {"target": "label", "steps": 3, "threads": 1, "method": "reweigh"}
    for run, data in (("whole", "rows.parquet"), ("cut", "set")):
        options = Options(data=tmp_path / data, clean=tmp_path / "checked.parquet", **quick)
        train(options, tmp_path / run)
        write_audit_list(tmp_path / run, tmp_path / f"{run}.csv")
    whole, cut = (pd.read_csv(tmp_path / f"{run}.csv") for run in ("whole", "cut"))
    assert cut["file"].iloc[0].startswith("train-0000")
    pd.testing.assert_frame_equal(whole, cut.drop(columns=["file", "row"]))
    write_predictions(tmp_path / "cut", tmp_path / "set", tmp_path / "said.csv")
    said = pd.read_csv(tmp_path / "said.csv")["file"].tolist()
    cells = rows.column("image").to_pylist()
    for k in (0, 16, 17, 39):
        found = image_at(tmp_path / "set", said[k])
        assert found is not None
        assert found.open().read() == cells[k]["bytes"]
    export_run(open_run(tmp_path / "cut"))
    assert pq.read_table(tmp_path / "cut" / "corrected.parquet").equals(rows)
