"""The run folder: old ones open, what is written can be read, what is damaged is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import reweigh
from reweigh.app import Options, Signs, train, write_audit_list, write_predictions
from reweigh.errors import DataError, UnknownNameError
from reweigh.report.run import render
from reweigh.runs import (
    RunFile,
    RunSummary,
    as_json,
    differences,
    of_json,
    open_run,
    read,
    versioned,
    write,
)
from reweigh.training import read_config
from support.old_run import write_old_run
from support.review_client import Client


def test_an_old_run_folder_opens_everywhere(tmp_path):
    run = write_old_run(tmp_path)
    predictor = reweigh.load(run)
    assert predictor.predict(tmp_path / "rows.csv").tolist() == ["high", "high", "low", "low"]
    assert write_predictions(run, tmp_path / "rows.csv", tmp_path / "p.csv") == 4
    path, rows, head = write_audit_list(run, None, head=1)
    assert (path.name, rows, head[0]["index"]) == ("audit.csv", 4, 1)
    page = render(run)
    assert "It did not help." in page
    assert "There are few rows." in page
    with Client(run) as client:
        assert client.get("/card").json()["row"] == 1
        client.decide(1, "relabel", "high")
        assert client.post("/export", {}).status_code == 200
    assert (run / "corrected.csv").read_text() == "x,label\n1,high\n2,high\n-1,low\n-2,low\n"
    config, data = read_config(run)
    assert (config.steps, config.drops, data) == (60, ((48, 0.1),), "bdfdcafc01b037d6")


def test_the_same_options_find_an_old_run_finished(tmp_path):
    run, lines = write_old_run(tmp_path), []
    data = tmp_path / "rows.csv"
    options = Options(data, data, "label", holdout=0.3, steps=60, threads=1)
    summary = train(options, run, Signs(say=lines.append))
    # What it lacks, as figures of candidates, is empty.
    old = json.loads((run / RunFile.SUMMARY).read_text())
    old["plan"]["network"]["factory"] = ""
    assert old.items() <= summary.items()
    assert "is finished" in lines[0]


def test_what_is_written_is_read_back_to_the_byte(tmp_path):
    summary = read(write_old_run(tmp_path) / RunFile.SUMMARY, RunSummary)
    assert summary.comparison[0].gain == 0.5
    write(tmp_path / "s.json", summary)
    assert json.loads((tmp_path / "s.json").read_text()) == versioned(summary)
    again = read(tmp_path / "s.json", RunSummary)
    assert again == summary
    assert not differences(again, summary)


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("source", {"rows": "many"}, "rows is 'many'; expected int"),
        ("source", {"kind": "tables"}, "did you mean 'table'"),
        ("source", {"classes": []}, "names no classes"),
        ("source", {"version": 2}, "version 2; expected 1"),
        ("network", {"mean": 3}, "mean is 3; expected a list"),
        ("network", {"scale": None}, "scale is None; expected float"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, change, part):
    run = write_old_run(tmp_path)
    path = run / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises((DataError, UnknownNameError)) as raised:
        reweigh.load(run)
    assert part in str(raised.value)


def test_a_key_of_a_later_version_is_passed_over(tmp_path):
    run = write_old_run(tmp_path)
    source = json.loads((run / "source.json").read_text())
    (run / "source.json").write_text(json.dumps(source | {"colour": "blue"}))
    assert open_run(run).source.rows == 4


@dataclass(frozen=True)
class _Inner:
    pair: tuple[int, float] = (1, 2.0)


@dataclass(frozen=True)
class _Outer:
    path: Path
    inner: _Inner | None = None
    inners: tuple[_Inner, ...] = ()
    anything: dict[str, object] = field(default_factory=dict)
    flag: bool = False


def test_json_is_read_by_the_types_of_the_fields(tmp_path):
    value = _Outer(tmp_path, _Inner((3, 4.5)), (_Inner(), _Inner()), flag=True)
    assert of_json(_Outer, json.loads(json.dumps(as_json(value)))) == value
    assert of_json(_Outer, {"path": "a", "inner": {"pair": [1, 2]}}).inner == _Inner((1, 2))
    for wrong in ({"path": 3}, {"path": "a", "flag": 1}, {"path": "a", "inner": {"pair": [1]}}):
        with pytest.raises(TypeError, match="expected"):
            of_json(_Outer, wrong)
    with pytest.raises(UnknownNameError, match="did you mean 'path'"):
        of_json(_Outer, {"paht": "a"})


def test_reading_a_run_needs_no_torch(tmp_path):
    run = write_old_run(tmp_path)
    code = (
        "import sys; from pathlib import Path; from reweigh.runs import open_run;"
        "run = open_run(Path(sys.argv[1])); run.summary(); run.first_suspects(2);"
        "from reweigh.report.run import render; render(run.path);"
        "from reweigh.app import Options;"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_the_former_name_of_app_still_works():
    sys.modules.pop("reweigh.own", None)
    with pytest.warns(DeprecationWarning, match=r"reweigh\.own is now reweigh\.app"):
        former = reweigh.own
    from reweigh.own import Options as former_options
    from reweigh.own import load  # fmt: skip
    from reweigh.own import train as former_train

    assert (former_options, former_train, load) == (Options, train, reweigh.load)
    assert set(reweigh.app.__all__) <= set(dir(former))
