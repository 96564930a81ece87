"""Workbooks, Arrow folders, zips of images, decimal commas: cells as they are, and clear refusals."""

from __future__ import annotations

import datetime
import json
import struct
import sys
import zipfile

import openpyxl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import DataError, MissingExtraError
from reweigh.tables import is_table, list_images, open_image, open_images, open_table, with_points
from reweigh.tables.decimals import decimal_style


def rows_of(path, **options):
    table = open_table(path, **options)
    return [row for piece in table.pieces() for row in piece.to_pylist()]


def workbook(path, *sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_cells_of_a_workbook_as_a_csv_would_have_them(tmp_path):
    day, moment = datetime.date(2024, 5, 31), datetime.datetime(2024, 5, 31, 7, 30)
    path = workbook(
        tmp_path / "a.xlsx",
        ("empty", []),
        ("rows", [
            [],
            [" x ", None, "label", None],
            [1.0, True, "a", "beside the table"],
            [None, None, None],
            [0.1, day, "#DIV/0!"],
            [12345678901, moment, ""],
        ]),
        ("notes", [["n"]]),
    )  # fmt: skip
    assert rows_of(path) == [
        {"x": "1", "column 2": "True", "label": "a"},
        {"x": "0.1", "column 2": "2024-05-31", "label": None},
        {"x": "12345678901", "column 2": "2024-05-31 07:30:00", "label": None},
    ]
    assert open_table(path).notes == ("only the sheet 'rows' is read, not 'notes'",)


def test_workbooks_that_cannot_be_read(tmp_path, monkeypatch):
    def refused(says, path):
        with pytest.raises(DataError, match=says):
            rows_of(path)

    sound = workbook(tmp_path / "sound.xlsx", ("a", [["x", "y"], [1, 2]]))
    (tmp_path / "cut.xlsx").write_bytes(sound.read_bytes()[:-200])
    refused("no Excel workbook", tmp_path / "cut.xlsx")
    (tmp_path / "old.xlsx").write_bytes(b"\xd0\xcf\x11\xe0" * 100)
    refused("password", tmp_path / "old.xlsx")
    with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as archive:
        archive.writestr("readme.txt", "no workbook")
    refused("no Excel workbook", tmp_path / "other.xlsx")
    broken = zipfile.ZipFile(tmp_path / "broken.xlsx", "w")
    with broken as archive, zipfile.ZipFile(sound) as whole:
        for name in whole.namelist():
            cut = whole.read(name)[:-40] if "sheet1" in name else whole.read(name)
            archive.writestr(name, cut)
    refused("damaged", tmp_path / "broken.xlsx")
    refused("has no cells", workbook(tmp_path / "empty.xlsx", ("a", [])))
    refused("two columns", workbook(tmp_path / "twice.xlsx", ("a", [["x", "x"], [1, 2]])))
    monkeypatch.setattr("reweigh.tables.excel.LARGEST", 1000)
    refused("unpacks to", sound)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'reweigh\[excel\]'"):
        open_table(sound)


def arrow_folder(folder, table, *, features=None, kind=pa.ipc.new_stream, **state):
    folder.mkdir()
    with kind(folder / "data.arrow", table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data.arrow"}], **state})
    )
    (folder / "dataset_info.json").write_text(json.dumps({"features": features or {}}))
    return folder


@pytest.mark.parametrize("kind", [pa.ipc.new_stream, pa.ipc.new_file])
def test_an_arrow_folder_gives_class_names(tmp_path, kind):
    table = pa.table({"text": ["a", "b", "c"], "label": [1, -1, 0], "n": [1, 2, None]})
    names = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    folder = arrow_folder(tmp_path / "set", table, features=names, kind=kind)
    assert is_table(folder)
    assert rows_of(folder) == [
        {"text": "a", "label": "pos", "n": 1},
        {"text": "b", "label": None, "n": 2},
        {"text": "c", "label": "neg", "n": None},
    ]


def test_arrow_folders_that_cannot_be_read(tmp_path):
    def refused(says, path):
        with pytest.raises(DataError, match=says):
            rows_of(path)

    table = pa.table({"x": list(range(1000))})
    several = tmp_path / "several"
    several.mkdir()
    (several / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    refused("train, test; give the folder of one", several)
    selected = arrow_folder(tmp_path / "b", table, _indices_files=[{"filename": "indices.arrow"}])
    refused("flatten_indices", selected)
    gone = arrow_folder(tmp_path / "c", table)
    (gone / "data.arrow").unlink()
    refused("copy the whole folder", gone)
    cut = arrow_folder(tmp_path / "d", table)
    (cut / "data.arrow").write_bytes((cut / "data.arrow").read_bytes()[:900])
    refused("truncated|cannot be read", cut)
    (cut / "state.json").write_text("[]")
    refused("no JSON object", cut)
    (cut / "state.json").write_text("{}")
    refused("names no files", cut)
    # A name that leads out of the folder is taken for one inside it.
    away = arrow_folder(tmp_path / "e", table)
    (away / "state.json").write_text('{"_data_files": [{"filename": "../d/data.arrow"}]}')
    assert len(rows_of(away)) == 1000


def test_an_archive_of_images_is_listed_and_never_unpacked(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("all/cat/1.png", "all/dog/2.JPG", "all/dog/x/3.png"):
            archive.writestr(name, b"no image")
        for name in (
            "../out/1.png",
            "/out/1.png",
            "c:/x/1.png",
            "a\\b/1.png",
            ".h/1.png",
            "r.txt",
        ):
            archive.writestr(name, b"")
    folder = open_images(path)
    assert folder.files == ("cat/1.png", "dog/2.JPG", "dog/x/3.png")
    assert folder.names == ("cat", "dog", "dog")
    assert [open_image(image) for image in folder.images] == [None] * 3
    assert list(tmp_path.iterdir()) == [path]
    assert str(list_images(path)["cat/1.png"]) == f"{path}/cat/1.png"


def test_archives_that_are_made_to_harm(tmp_path, monkeypatch):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cat/1.png", b"x" * 100)
        archive.writestr("dog/1.png", b"x" * 100)
    claims = path.read_bytes()
    honest, huge = struct.pack("<LL", 100, 100), struct.pack("<LL", 100, 2**31)
    (tmp_path / "claims.zip").write_bytes(claims.replace(honest, huge))
    with pytest.raises(DataError, match="claims to unpack"):
        open_images(tmp_path / "claims.zip")
    monkeypatch.setattr("reweigh.tables.zipped_images.LARGEST", 50)
    with pytest.raises(OSError, match="larger than"):
        open_images(path).members[0].open()
    (tmp_path / "cut.zip").write_bytes(claims[:-30])
    with pytest.raises(DataError, match="no zip archive"):
        open_images(tmp_path / "cut.zip")
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("rows.csv", b"x\n1\n")
    with pytest.raises(DataError, match="no images"):
        open_images(tmp_path / "table.zip")


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        (["3,14", "2", "-0,5"], "comma"),
        (["1.234,5", "1.234", "7"], "comma"),
        (["1 234,56", "1\u00a0234,5", "NA", ""], "comma"),
        (["0,125", "1,250"], "comma"),  # no group of thousands begins with a zero
        ([",5", "1,5e-3"], "comma"),
        (["1,234", "5,678"], "unclear"),
        (["3,14", "3.14"], "unclear"),
        (["3,14", "1,234,567"], ""),
        (["1,234.5", "2,5"], ""),
        (["Ulm, 3", "Bonn, 4"], ""),
        (["1", "2.5"], ""),
        (["a", "b"], ""),
        (["", None], ""),
    ],
)
def test_decimal_commas_are_told_from_the_cells(cells, style):
    assert decimal_style(pa.array(cells, pa.string())) == style


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_numbers_with_commas_come_back(values):
    written = [f"{value:,.3f}".translate(str.maketrans(",.", ".,")) for value in values]
    read = with_points(pa.array(written)).to_pylist()
    assert [float(cell) for cell in read] == [float(f"{value:.3f}") for value in values]


def test_commas_are_looked_for_where_they_do_not_part_cells(tmp_path):
    (tmp_path / "a.csv").write_text("x;y\n1,5;1,234\n2;2,345\n")
    table = open_table(tmp_path / "a.csv")
    assert (table.commas, table.unclear) == ({"x"}, {"y"})
    assert rows_of(tmp_path / "a.csv")[0] == {"x": "1.5", "y": "1,234"}
    assert "may be decimal or part thousands" in table.notes[1]
    known = table.with_commas(["y", "z"])
    assert next(known.pieces()).to_pylist()[0] == {"x": "1.5", "y": "1.234"}
    (tmp_path / "b.csv").write_text('x,y\n"1,5",a\n')
    assert rows_of(tmp_path / "b.csv")[0] == {"x": "1,5", "y": "a"}
