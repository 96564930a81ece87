"""Images in the cells of a table train as the same images in a folder do."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import reweigh
from reweigh.app import Options, plan_fix, train, write_audit_list, write_predictions
from reweigh.errors import DataError, SettingError
from reweigh.report import write_report
from reweigh.review import export_run, write_fixed
from reweigh.runs import open_run
from reweigh.tables import image_columns, open_image_cells
from support.image_tables import HUGGING_FACE, as_table
from support.own_data import images
from support.review_client import Client

QUICK = {"steps": 3, "threads": 1, "method": "reweigh"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Images in folders, and a run on them: what tables are compared with."""
    home = tmp_path_factory.mktemp("folders")
    images(home / "rows", 50, 0, noise=0.3)
    images(home / "checked", 16, 1)
    train(Options(data=home / "rows", clean=home / "checked", **QUICK), home / "run")
    return home


def tabled(folders, home, **form):
    for name in ("rows", "checked"):
        # Small groups, so that rows are looked for in several.
        pq.write_table(as_table(folders / name, **form), home / f"{name}.parquet", row_group_size=9)
    return Options(
        data=home / "rows.parquet", clean=home / "checked.parquet", target="label", **QUICK
    )


def ranking(run):
    return pd.read_parquet(run / "audit.parquet")


@pytest.mark.parametrize("plain", [False, True])
def test_a_parquet_file_trains_as_the_folder_does(tmp_path, folders, plain):
    train(tabled(folders, tmp_path, plain=plain), tmp_path / "run")
    pd.testing.assert_frame_equal(ranking(tmp_path / "run"), ranking(folders / "run"))
    ours = reweigh.load(tmp_path / "run").predict_proba(tmp_path / "checked.parquet")
    theirs = reweigh.load(folders / "run").predict_proba(folders / "checked")
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(
        reweigh.load(tmp_path / "run").predict_proba(folders / "checked"), theirs
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, folders):
    home = tmp_path_factory.mktemp("tabled")
    train(tabled(folders, home), home / "run")
    return home


def test_lists_name_column_row_and_path(trained):
    write_audit_list(trained / "run", trained / "audit.csv")
    shown = pd.read_csv(trained / "audit.csv")
    paths = pq.read_table(trained / "rows.parquet").column("image").to_pylist()
    for index, name in zip(shown["index"], shown["path"], strict=True):
        assert name == f"image[{index}] {paths[index]['path']}"
    write_predictions(trained / "run", trained / "rows.parquet", trained / "said.csv")
    said = pd.read_csv(trained / "said.csv")
    assert said["file"].tolist() == [f"image[{k}] {p['path']}" for k, p in enumerate(paths)]


def test_formats_for_programs_that_open_files_are_refused(trained):
    with pytest.raises(DataError, match="write them to files, and train on the folder"):
        write_audit_list(trained / "run", trained / "listed", form="huggingface")


def test_the_review_page_shows_the_very_image(trained):
    suspects = pd.read_parquet(trained / "run" / "suspects.parquet")
    cells = pq.read_table(trained / "rows.parquet").column("image").to_pylist()
    with Client(trained / "run") as client:
        for index in suspects["index"].head(5):
            assert f"/image/{index}" in client.get(f"/card?row={index}").json()["card"]
            assert client.get(f"/image/{index}").content == cells[index]["bytes"]


def test_the_report_has_pictures(trained):
    assert "data:image/png;base64," in write_report(trained / "run").read_text()


def test_corrections_keep_the_form(trained, tmp_path):
    export_run(open_run(trained / "run"))
    before, after = (
        pq.read_table(path)
        for path in (trained / "rows.parquet", trained / "run" / "corrected.parquet")
    )
    assert after.equals(before)
    plan = plan_fix(trained / "run", tmp_path / "fixed", false_alarms=0.2, gain=False)
    write_fixed(plan.run, plan.fixes, plan.summary, tmp_path / "fixed")
    assert pq.read_table(tmp_path / "fixed" / "corrected.parquet").schema == before.schema


def test_a_folder_of_hugging_face(tmp_path, folders):
    for name in ("rows", "checked"):
        table = as_table(folders / name, names=["right", "left"])
        folder = tmp_path / name
        folder.mkdir()
        files = []
        for k, part in enumerate((table.slice(0, 7), table.slice(7))):
            files.append({"filename": f"data-0000{k}-of-00002.arrow"})
            with pa.ipc.new_stream(folder / files[-1]["filename"], table.schema) as stream:
                stream.write_table(part, max_chunksize=5)
        (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None}))
        (folder / "dataset_info.json").write_text(json.dumps(HUGGING_FACE["info"]))
    options = Options(data=tmp_path / "rows", clean=tmp_path / "checked", target="label", **QUICK)
    train(options, tmp_path / "run")
    pd.testing.assert_frame_equal(ranking(tmp_path / "run"), ranking(folders / "run"))
    assert "data:image/png;base64," in write_report(tmp_path / "run").read_text()


def test_a_cell_without_an_image_is_left_out_and_listed(tmp_path, folders):
    options = tabled(folders, tmp_path)
    table = pq.read_table(options.data)
    cells = table.column("image").to_pylist()
    cells[3], cells[5] = None, {"bytes": b"no image", "path": "five.png"}
    column = pa.array(cells, table.schema.field("image").type)
    pq.write_table(table.set_column(0, "image", column), options.data)
    train(options, tmp_path / "run")
    assert sorted(set(range(50)) - set(ranking(tmp_path / "run")["index"])) == [3, 5]
    listed = (tmp_path / "run" / "unreadable.txt").read_text().splitlines()
    assert listed == ["image[3]", "image[5] five.png"]


def test_rows_marked_as_checked(tmp_path, folders):
    table = as_table(folders / "rows")
    pq.write_table(table, tmp_path / "rows.parquet")
    asked = {"data": tmp_path / "rows.parquet", "target": "label", "clean_where": "length == 0"}
    train(Options(**asked, **QUICK), tmp_path / "run")
    assert sorted(ranking(tmp_path / "run")["index"]) == [k for k in range(50) if k % 3]


def test_which_columns_hold_images(tmp_path, folders):
    table = as_table(folders / "rows")
    pq.write_table(table.append_column("raw", pa.array([b"\xff\x00"] * 50)), tmp_path / "a.parquet")
    assert image_columns(tmp_path / "a.parquet") == ("image",)
    assert image_columns(folders / "rows") == ()
    twice = table.append_column("mask", table.column("image"))
    pq.write_table(twice, tmp_path / "b.parquet")
    asked = {"data": tmp_path / "b.parquet", "clean": tmp_path / "b.parquet", "target": "label"}
    with pytest.raises(SettingError, match=r"images in image, mask.*--image"):
        train(Options(**asked, **QUICK), tmp_path / "run")
    with pytest.raises(DataError, match="'length' holds no images"):
        train(Options(**asked, image="length", **QUICK), tmp_path / "run")


def test_any_row_of_many_groups(tmp_path):
    """Each cell is found by its row, in any order."""
    contents = []
    for shade in range(40):
        stream = io.BytesIO()
        Image.new("L", (8, 8), shade).save(stream, format="png")
        contents.append(stream.getvalue())
    pq.write_table(pa.table({"image": contents}), tmp_path / "a.parquet", row_group_size=7)
    cells = open_image_cells(tmp_path / "a.parquet", "image").members
    for row in np.random.default_rng(0).permutation(40):
        assert cells[row].open().read() == contents[row]
    with pytest.raises(OSError, match="no row 40"):
        type(cells[0])(tmp_path / "a.parquet", "image", 40, "image[40]").open()
