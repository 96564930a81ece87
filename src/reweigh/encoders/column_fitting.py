"""What kind a column is, from a sample of its cells, and the statistics to encode it with.

empty, constant, counts the rows, differs in nearly every row    left out, with the reason
dates, numbers (at least 95% of its cells), words                see columns.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..tables import Array, Numbers, arrow, is_text, numbers, words
from .columns import (
    DATE_FORMATS,
    DAY,
    LEVELS,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    seconds_of,
)

MOSTLY = 0.95
"""Share of a column's cells that must be numbers (dates) for it to be a column of them."""


@dataclass(frozen=True)
class Unused:
    """A column left out, and why."""

    name: str
    why: str


def fit_column(
    name: str, array: Array, rows: npt.NDArray[np.int64]
) -> tuple[Column | Unused, str | None]:
    """Look at a sample of a column: how to encode it, or why not; and a notice, if any.

    `rows` are the positions of the sampled cells in the file.
    """
    cells = words(array)
    there = len(cells) - cells.null_count
    if there == 0:
        return Unused(name, "is empty"), None
    distinct = arrow("compute").count_distinct(cells, mode="only_valid").as_py()
    gaps = there < len(cells)
    if distinct == 1 and not gaps:
        return Unused(name, "has the same value in every row"), None
    return _fit_filled(name, array, cells, rows, distinct)


def _fit_filled(
    name: str, array: Array, cells: Array, rows: npt.NDArray[np.int64], distinct: int
) -> tuple[Column | Unused, str | None]:
    values = numbers(array)
    there, numeric = len(cells) - cells.null_count, int(np.sum(~np.isnan(values)))
    note = None
    column: Column | Unused
    if _is_time(array):
        column = _fit_date(name, "", values)
    elif numeric >= MOSTLY * there and len(rows) > 50 and len(np.unique(values - rows)) == 1:
        column = Unused(name, "only counts the rows")
    elif numeric >= MOSTLY * there:
        if numeric < there:
            note = f"column {name!r}: {there - numeric:,} cells are no numbers and count as missing"
        column = _fit_number(name, values)
    elif (form := _date_form(array)) is not None:
        column = _fit_date(name, form, seconds_of(array, form))
    elif there > 50 and distinct > 0.9 * there:
        column = Unused(name, "differs in nearly every row (a name or a text? see --text)")
    else:
        column = _fit_category(name, cells)
    return column, note


def _fit_number(name: str, values: Numbers) -> NumberColumn:
    centre, scale = robust_scale(values)
    return NumberColumn(name, centre, scale, bool(np.isnan(values).any()))


def _fit_date(name: str, form: str, seconds: Numbers) -> DateColumn:
    centre, scale = robust_scale(seconds)
    hours = bool(np.any(np.nan_to_num(seconds) % DAY))
    return DateColumn(name, form, centre, scale, bool(np.isnan(seconds).any()), hours)


def _fit_category(name: str, cells: Array) -> CategoryColumn:
    counts = arrow("compute").value_counts(cells.drop_null()).to_pylist()
    ranked = sorted(counts, key=lambda entry: (-entry["counts"], entry["values"]))
    levels = tuple(entry["values"] for entry in ranked if entry["counts"] > 1)[: LEVELS - 1]
    return CategoryColumn(name, levels, cells.null_count > 0)


def robust_scale(values: Numbers) -> tuple[float, float]:
    """Median and scale: the interquartile range / 1.35, the standard deviation of a normal law.

    Where both quartiles are equal, the scale is half the range, or 1 for a constant.
    """
    from sklearn.preprocessing import RobustScaler

    known = values[~np.isnan(values)].reshape(-1, 1)
    scaler = RobustScaler(unit_variance=True).fit(known)
    low, high = np.percentile(known, [25, 75])
    scale = float(scaler.scale_[0])
    if high == low:
        scale = float(np.ptp(known)) / 2 or 1.0
    return float(scaler.center_[0]), scale


def _is_time(array: Array) -> bool:
    types = arrow("types")
    return bool(types.is_timestamp(array.type) or types.is_date(array.type))


def _date_form(array: Array) -> str | None:
    if not is_text(array):
        return None
    head = words(array.slice(0, 5000))
    filled = len(head) - head.null_count
    parsed = {form: int(np.sum(~np.isnan(seconds_of(head, form)))) for form in DATE_FORMATS}
    best = max(DATE_FORMATS, key=lambda form: parsed[form])
    return best if filled and parsed[best] >= MOSTLY * filled else None
