"""The same rows in another form give the same run: Excel, Hugging Face, decimal commas, a pipe, a zip."""

from __future__ import annotations

import io
import json
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reweigh
from reweigh.app import Options, train, write_audit_list
from reweigh.cli import main
from reweigh.errors import DataError
from reweigh.runs import open_run
from support.own_data import images, table

QUICK = {"steps": 4, "hidden": 4, "threads": 1, "method": "reweigh"}


def frames():
    return {"rows": table(80, 0, noise=0.3)[0], "checked": table(20, 1)[0]}


@pytest.fixture(scope="module")
def as_csv(tmp_path_factory):
    """A folder with the rows as CSV, and a run on them: what every other form is compared with."""
    folder = tmp_path_factory.mktemp("csv")
    for name, frame in frames().items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    train(asked(folder, "csv"), folder / "run")
    return folder


def asked(folder, suffix, **changes):
    names = {"data": folder / f"rows.{suffix}", "clean": folder / f"checked.{suffix}"}
    return Options(**{**names, "target": "label", **QUICK, **changes})


def ranking(run):
    return pd.read_parquet(run / "audit.parquet")


def write_excel(path, frame):
    frame.assign(seen_on=pd.to_datetime(frame["seen_on"])).to_excel(path, index=False)


def test_a_workbook_trains_and_predicts_as_the_csv_does(tmp_path, as_csv):
    for name, frame in frames().items():
        write_excel(tmp_path / f"{name}.xlsx", frame)
    train(asked(tmp_path, "xlsx"), tmp_path / "run")
    pd.testing.assert_frame_equal(ranking(tmp_path / "run"), ranking(as_csv / "run"))
    ours = reweigh.load(tmp_path / "run").predict_proba(tmp_path / "checked.xlsx")
    theirs = reweigh.load(as_csv / "run").predict_proba(as_csv / "checked.csv")
    np.testing.assert_array_equal(ours, theirs)


def save_to_disk(folder, frame, classes):
    """As `datasets.Dataset.save_to_disk` does, in two files; the label as a class number."""
    coded = frame.assign(label=[classes.index(name) for name in frame["label"]])
    whole = pa.Table.from_pandas(coded, preserve_index=False)
    folder.mkdir(parents=True)
    files = []
    for k, part in enumerate((whole.slice(0, 7), whole.slice(7))):
        files.append({"filename": f"data-0000{k}-of-00002.arrow"})
        with pa.ipc.new_stream(folder / files[-1]["filename"], whole.schema) as stream:
            stream.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None}))
    features = {"label": {"names": classes, "_type": "ClassLabel"},
                "length": {"dtype": "float64", "_type": "Value"}}  # fmt: skip
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_data_set_of_hugging_face_trains_as_the_csv_does(tmp_path, as_csv):
    for name, frame in frames().items():
        save_to_disk(tmp_path / f"{name}.hf", frame, ["eel", "dog", "cat"])
    train(asked(tmp_path, "hf"), tmp_path / "run")
    pd.testing.assert_frame_equal(ranking(tmp_path / "run"), ranking(as_csv / "run"))


def test_decimal_commas_are_read_and_said(tmp_path, as_csv):
    for name, frame in frames().items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False, sep=";", decimal=",")
    said = []
    summary = train(asked(tmp_path, "csv"), tmp_path / "run", signs(said))
    pd.testing.assert_frame_equal(ranking(tmp_path / "run"), ranking(as_csv / "run"))
    note = "data: decimal commas in 'length', 'weight': read as numbers"
    assert note in said
    assert note in summary["notes"]
    points = reweigh.load(tmp_path / "run").predict_proba(as_csv / "checked.csv")
    commas = reweigh.load(tmp_path / "run").predict_proba(tmp_path / "checked.csv")
    np.testing.assert_array_equal(points, commas)


def signs(said):
    from reweigh.app import Signs

    return Signs(say=said.append)


def piped(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def test_rows_come_through_a_pipe_and_the_run_goes_on_with_the_same(
    tmp_path, as_csv, monkeypatch, capsys
):
    rows = (as_csv / "rows.csv").read_bytes()
    out = tmp_path / "run"
    line = ("train", "--data", "-", "--clean", as_csv / "checked.csv", "--target", "label", "--steps", 4,
            "--hidden", 4, "--threads", 1, "--method", "reweigh", "--out", out)  # fmt: skip
    piped(monkeypatch, rows)
    assert command(*line) == 0
    pd.testing.assert_frame_equal(ranking(out), ranking(as_csv / "run"))
    assert (out / "stdin.csv").read_bytes() == rows
    for again in (rows, b""):
        piped(monkeypatch, again)
        assert command(*line) == 0
    capsys.readouterr()
    piped(monkeypatch, rows + b"1,2,Ulm,2024-01-01,cat\n")
    assert command(*line) == 2
    assert "other rows from standard input" in capsys.readouterr().err
    lines = frames()["checked"].to_json(orient="records", lines=True).encode()
    piped(monkeypatch, lines)
    assert command("predict", out, "--data", "-", "--out", tmp_path / "predicted.csv") == 0
    assert len(pd.read_csv(tmp_path / "predicted.csv")) == 20


def test_what_a_pipe_cannot_be(tmp_path, as_csv, monkeypatch, capsys):
    def refused(content, says, *more):
        piped(monkeypatch, content)
        line = ("train", "--data", "-", "--target", "label", *more)
        assert command(*line, "--out", tmp_path / "run") == 2
        assert says in capsys.readouterr().err

    clean = ("--clean", as_csv / "checked.csv")
    refused(b"", "standard input is empty", *clean)
    refused(b"x", "both are standard input", "--clean", "-")
    refused(b"a;b\n1;2\n", "did you mean 'csv'", *clean, "--format", "cvs")
    refused(b"not parquet", "no Parquet file", *clean, "--format", "parquet")
    assert command("predict", as_csv / "run", "--data", as_csv / "rows.csv", "--format", "csv",
                   "--out", tmp_path / "p.csv") == 2  # fmt: skip
    assert "--format is for standard input" in capsys.readouterr().err


def zipped(folder, path, *, prefix=""):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.png")):
            archive.write(file, prefix + file.relative_to(folder).as_posix())
        archive.writestr("__MACOSX/left/._0001.png", b"junk")
        archive.writestr("../../escaped/0001.png", b"junk")
    return path


def test_a_zip_of_images_trains_as_the_folder_does(tmp_path):
    images(tmp_path / "photos", 30, 0)
    images(tmp_path / "checked", 10, 1)
    zipped(tmp_path / "photos", tmp_path / "photos.zip", prefix="photos/")
    zipped(tmp_path / "checked", tmp_path / "checked.zip")
    plain = {"steps": 2, "image_size": 8, "method": "reweigh", "threads": 1}
    for name, ending in (("folder", ""), ("zip", ".zip")):
        data, clean = tmp_path / f"photos{ending}", tmp_path / f"checked{ending}"
        train(Options(data=data, clean=clean, **plain), tmp_path / name)
    before, after = ranking(tmp_path / "folder"), ranking(tmp_path / "zip")
    pd.testing.assert_frame_equal(before, after)
    assert {p.name for p in tmp_path.iterdir()} == {
        "photos", "checked", "photos.zip", "checked.zip", "folder", "zip",
    }  # fmt: skip
    predictor = reweigh.load(tmp_path / "zip")
    np.testing.assert_array_equal(
        predictor.predict_proba(tmp_path / "checked.zip"),
        predictor.predict_proba(tmp_path / "checked"),
    )

    from reweigh.report.run import render
    from reweigh.review.suspect_image import content, picture

    pictures = [
        render(tmp_path / name).count("data:image/png;base64,") for name in ("folder", "zip")
    ]
    assert pictures[0] == pictures[1] >= 24
    suspect = open_run(tmp_path / "zip").first_suspects(1)[0]
    shown, kind = content(picture(tmp_path / "photos.zip", suspect.example))
    assert (shown, kind) == ((tmp_path / "photos" / suspect.example).read_bytes(), "image/png")

    with pytest.raises(DataError, match="unpack it, and train on the folder"):
        write_audit_list(tmp_path / "zip", tmp_path / "samples", form="fiftyone")
