"""Tables: what is read is what was written, in pieces."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from reweigh.errors import DataError, SettingError
from reweigh.tables import (
    LabelScan,
    label_words,
    numbers,
    open_table,
    parse_condition,
    reader,
    scan_table,
    words,
)


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
    monkeypatch.setattr(reader, "PIECE_BYTES", 4096)
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
    assert label_words(pa.array([1.0, 2.0, math.nan])).to_pylist() == ["1", "2", None]
    assert label_words(pa.array(["007", "1.0", "1.05"])).to_pylist() == ["007", "1", "1.05"]
    assert words(pa.array([True, False, None])).to_pylist() == ["True", "False", None]
    assert numbers(pa.array([pd.Timestamp("1970-01-02")])).tolist() == [86400.0]


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
    assert parse_condition(text).meets(pa.array(cells)).tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize("text", ["checked", "== 1", "checked == ", "__import__('os')", "a b"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(SettingError, match="COLUMN OP VALUE"):
        parse_condition(text)


def test_a_scan_samples_every_row_equally_often(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "PIECE_ROWS", 100)
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.arange(1000), "y": ["a", "b"] * 500}).to_parquet(path)
    counts = np.zeros(1000)
    for seed in range(40):
        looked = scan_table(open_table(path), "y", columns=["x"], capacity=100, seed=seed)
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
    gathered = LabelScan()
    gathered.add_names(cells)
    assert gathered.finish().guess() == task


def test_labels_are_coded_in_their_natural_order():
    gathered = LabelScan()
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
