"""Columns become numbers as documented, and go through JSON unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reweigh.encoders import fit_table
from reweigh.encoders.columns import CategoryColumn, DateColumn, NumberColumn, describe, restore
from reweigh.encoders.table import Unused, fit_column


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
    encoder, _ = fit_table(piece, np.arange(len(days)), ["day", "word", "value"])
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
