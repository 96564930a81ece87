"""Tables: what is read is what was written, in pieces, and columns become numbers as documented."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from reweigh.data import tables
from reweigh.encoders.column_fitting import Unused, fit_column
from reweigh.encoders.columns import CategoryColumn, DateColumn, NumberColumn, describe, restore
from reweigh.encoders.table import fit
from reweigh.errors import DataError, SettingError
from reweigh.tables.cells import labels, numbers, words
from reweigh.tables.labels import TargetScan
from reweigh.tables.reader import open_table
from reweigh.tables.row_filter import parse
from reweigh.tables.scan import scan


def column(path, name, **options):
    pieces = list(open_table(path, **options).pieces([name]))
    return [cell for piece in pieces for cell in piece.column(name).to_pylist()]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    path = tmp_path / "a.csv"
    path.write_text(delimiter.join(["a", "b b", "c"]) + "\n" + delimiter.join("123") + "\n")
    assert open_table(path).columns == ("a", "b b", "c")
    assert column(path, "b b") == ["2"]


def test_quotes_line_breaks_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffname,note\n"x, y","two\nlines"\nz,\n'.encode())
    assert open_table(path).columns == ("name", "note")
    assert column(path, "name") == ["x, y", "z"]
    assert column(path, "note") == ["two\nlines", None]


def test_other_encodings_and_gzip(tmp_path):
    latin, packed = tmp_path / "l.csv", tmp_path / "p.csv.gz"
    latin.write_bytes("name\nKöln\n".encode("latin-1"))
    packed.write_bytes(gzip.compress("name\nKöln\n".encode()))
    assert column(latin, "name", encoding="latin-1") == ["Köln"]
    assert column(packed, "name") == ["Köln"]


def test_a_type_that_changes_late_in_a_file_breaks_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 4096)
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "\n".join(map(str, range(5000))) + "\nunknown\n1.5\n")
    assert sum(1 for _ in open_table(path).pieces()) > 3
    assert column(path, "a")[-3:] == ["4999", "unknown", "1.5"]


def test_parquet_keeps_types_and_order(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"n": [1.5, None, 3.0], "w": ["x", None, "z"]})
    frame.to_parquet(path)
    assert column(path, "n") == [1.5, None, 3.0]
    assert column(path, "w") == ["x", None, "z"]


def test_cells_as_numbers_words_and_labels():
    mixed = pa.array(["1", " 2.5 ", "x", None, "inf", ""])
    assert numbers(mixed)[:2].tolist() == [1.0, 2.5]
    assert np.isnan(numbers(mixed)[2:]).all()
    assert words(mixed).to_pylist() == ["1", "2.5", "x", None, "inf", None]
    assert labels(pa.array([1.0, 2.0, math.nan])).to_pylist() == ["1", "2", None]
    assert labels(pa.array(["007", "1.0", "1.05"])).to_pylist() == ["007", "1", "1.05"]
    assert words(pa.array([True, False, None])).to_pylist() == ["True", "False", None]
    assert numbers(pa.array([pd.Timestamp("1970-01-02")])).tolist() == [86400.0]


def fitted(cells):
    found, note = fit_column("c", pa.array(cells), np.arange(len(cells)) * 2)
    return found, note


def test_a_number_is_scaled_by_quartiles_and_squeezed():
    cells = [0.0, 1.0, 2.0, 3.0, 4.0, 1e9]
    found, _ = fitted([*map(str, cells)])
    assert isinstance(found, NumberColumn)
    low, high = np.percentile(cells, [25, 75])
    scale = (high - low) / (2 * 0.6744897501960817)
    z = (np.array(cells) - np.median(cells)) / scale
    expected = z / np.sqrt(1 + (z / 3) ** 2)
    encoded = found.encode(pa.array([*map(str, cells)]))
    assert np.allclose(encoded[:, 0], expected, atol=1e-5)
    assert np.abs(encoded).max() <= 3


def test_a_missing_number_is_the_median_and_is_marked():
    found, _ = fitted(["1", None, "2", "3"])
    assert found.encode(pa.array(["2", None]))[:, :].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_a_column_of_numbers_may_hold_a_few_words():
    found, note = fitted(["1.5", "2.5"] * 30 + ["n.a."])
    assert isinstance(found, NumberColumn)
    assert "1 cells are no numbers" in note


def test_categories_others_and_gaps_have_a_place_each():
    found, _ = fitted(["x", "y", "x", None, "y", "rare"])
    assert isinstance(found, CategoryColumn)
    assert found.levels == ("x", "y")
    assert found.encode(pa.array(["y", "x", "new", None])).tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2024-01-31", "2024-02-01", None], "ISO8601"),
        (["2024-01-31T10:00", "2024-02-01T11:30"], "ISO8601"),
        (["31/01/2024", "01/02/2024", "05/02/2024"], "%d/%m/%Y"),
        (["01/31/2024", "02/01/2024", "02/28/2024"], "%m/%d/%Y"),
        (["31.01.2024", "01.02.2024"], "%d.%m.%Y"),
    ],
)
def test_dates_are_recognised(cells, form):
    found, _ = fitted(cells)
    assert isinstance(found, DateColumn)
    assert found.form == form
    assert found.encode(pa.array(cells)).shape == (len(cells), found.width)


def test_a_weekday_comes_back_after_seven_days():
    found, _ = fitted(["2024-01-01", "2024-01-08", "2024-01-04"])
    monday, next_monday, thursday = found.encode(
        pa.array(["2024-01-01", "2024-01-08", "2024-01-04"])
    )
    week = [1 + found.gaps + 1, 1 + found.gaps + 3]  # sine and cosine of the second cycle
    assert np.allclose(monday[week], next_monday[week], atol=1e-4)
    assert not np.allclose(monday[week], thursday[week], atol=0.1)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["5"] * 60, "same value"),
        ([None, None], "empty"),
        ([f"name {k}" for k in range(60)], "nearly every row"),
        ([str(2 * k + 7) for k in range(60)], "counts the rows"),
    ],
)
def test_columns_that_teach_nothing_are_left_out(cells, why):
    found, _ = fit_column("c", pa.array(cells, pa.string()), np.arange(len(cells)) * 2)
    assert isinstance(found, Unused)
    assert why in found.why


@pytest.mark.parametrize("kind", [pa.string(), pa.date32()], ids=str)
def test_rows_are_told_apart_by_every_column_dates_too(kind):
    days = [f"20{10 + k % 9}-03-{1 + k % 28:02d}" for k in range(60)]
    words, values = ["a", "b"] * 30, [1.5, 2.5, 3.5] * 20
    piece = pa.table({"day": pa.array(days).cast(kind), "word": words, "value": values})
    encoder, _ = fit(piece, np.arange(len(days)), ["day", "word", "value"])
    seen = set(zip(days, words, values, strict=True))
    assert len(np.unique(encoder.digests(piece))) == len(seen)


def test_sorted_numbers_are_no_counter():
    found, _ = fit_column("c", pa.array([k * k for k in range(60)]), np.arange(60))
    assert isinstance(found, NumberColumn)


@pytest.mark.parametrize(
    "cells", [["1", None, "2"], ["x", "y", "x", "y"], ["2024-01-31", "2024-02-01"]]
)
def test_a_fitted_column_survives_json(cells):
    found, _ = fitted(cells)
    again = restore(describe(found))
    assert again == found


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("checked == 1", ["1", "1.0", "0", None, "x"], [1, 1, 0, 0, 0]),
        ("checked != 1", ["1", "2", None], [0, 1, 0]),
        ("checked >= 0.5", ["0.4", "0.5", "1"], [0, 1, 1]),
        ("by = 'Ann Lee'", ["Ann Lee", "Bob", None], [1, 0, 0]),
        ("'the column' != yes", ["yes", "no", None], [0, 1, 0]),
    ],
)
def test_conditions(text, cells, expected):
    assert parse(text).meets(pa.array(cells)).tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize("text", ["checked", "== 1", "checked == ", "__import__('os')", "a b"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(SettingError, match="COLUMN OP VALUE"):
        parse(text)


def test_a_scan_samples_every_row_equally_often(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS", 100)
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.arange(1000), "y": ["a", "b"] * 500}).to_parquet(path)
    counts = np.zeros(1000)
    for seed in range(40):
        looked = scan(open_table(path), "y", columns=["x"], capacity=100, seed=seed)
        rows = looked.sample_rows
        assert looked.rows == 1000
        assert len(rows) == 100
        assert looked.sample.column("x").to_pylist() == rows.tolist()
        counts[rows] += 1
    tenths = counts.reshape(10, 100).sum(1)  # 400 expected in each, standard deviation 19
    assert np.all(np.abs(tenths - 400) < 80)


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["a", "b"], "classes"),
        (["0", "1", "1.0"], "classes"),
        (["1.5", "2.5"], "regression"),
        ([str(k) for k in range(100)], "regression"),
        (["1", "2", "unknown"], "classes"),
    ],
)
def test_the_task_is_guessed_from_the_labels(cells, task):
    gathered = TargetScan()
    gathered.add_names(cells)
    assert gathered.finish().guess() == task


def test_labels_are_coded_in_their_natural_order():
    gathered = TargetScan()
    gathered.add_names(["10", "2", None])
    gathered.add_names(["2", "x"])
    found = gathered.finish()
    assert found.names == ("2", "10", "x")
    assert found.codes.tolist() == [1, 0, -1, 0, 2]
    assert found.coded(["x", "2"]).tolist() == [-1, 1, -1, 1, 0]


def test_a_missing_column_gets_a_suggestion(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,x\n1,2\n")
    with pytest.raises(DataError, match="did you mean 'label'"):
        open_table(path).require("lable")
