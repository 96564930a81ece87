"""Columns of a table as numbers that a network can take; fitted are a few statistics per column.

    number     z = (x - median) / scale, squeezed to z / sqrt(1 + (z/3)^2): smooth, within 3, so
               that an outlier cannot dominate a batch (Holzmueller et al., 2024); scale is the
               interquartile range / 1.35, or half the range where both quartiles are equal
    date       seconds as a number; sine and cosine of the day in the year, of the weekday, and of
               the time of day where there is one
    category   one output for each of the 63 most common levels, and one for all others

A missing cell counts as the median, or as a level of its own. If the sample has missing cells, one more
output is 1 where a cell is missing and 0 elsewhere. Statistics are kept as JSON: loading runs no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..tables import Array, Numbers, arrow, is_text, numbers, pandas, words

Features = npt.NDArray[np.float32]

LEVELS = 64
DATE_FORMATS = (
    "ISO8601", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d",
    "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S",
)  # fmt: skip
NORMAL_QUARTILES = 2 * NormalDist().inv_cdf(0.75)
"""The interquartile range of the standard normal law: 1.349."""
_DAY, _YEAR = 86_400.0, 365.2425 * 86_400.0


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers; `gaps`: whether one more output marks missing cells."""

    name: str
    centre: float
    scale: float
    gaps: bool

    @classmethod
    def fit(cls, name: str, values: Numbers) -> NumberColumn:
        """The statistics of a sample; NaN where a cell is missing."""
        return cls(name, *robust_scale(values), bool(np.isnan(values).any()))

    @property
    def width(self) -> int:
        """The number, and whether it was missing."""
        return 1 + self.gaps

    def encode(self, array: Array) -> Features:
        """[n, width]."""
        return _scaled(numbers(array), self.centre, self.scale, self.gaps)


@dataclass(frozen=True)
class DateColumn:
    """A column of dates.

    form     one of DATE_FORMATS, or "" where the file has dates as such
    hours    whether the time of day is encoded too
    """

    name: str
    form: str
    centre: float
    scale: float
    gaps: bool
    hours: bool

    @classmethod
    def fit(cls, name: str, form: str, seconds: Numbers) -> DateColumn:
        """The statistics of a sample; NaN where a cell is missing."""
        hours = bool(np.any(np.nan_to_num(seconds) % _DAY))
        return cls(name, form, *robust_scale(seconds), bool(np.isnan(seconds).any()), hours)

    @property
    def width(self) -> int:
        """Trend, gap, and a sine and a cosine per cycle."""
        return 1 + self.gaps + 2 * (2 + self.hours)

    def encode(self, array: Array) -> Features:
        """[n, width]."""
        seconds = seconds_of(array, self.form)
        cycles = [_YEAR, 7 * _DAY, *([_DAY] if self.hours else [])]
        angles = 2 * np.pi * np.stack([seconds / cycle for cycle in cycles], axis=1)
        waves = np.nan_to_num(np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
        trend = _scaled(seconds, self.centre, self.scale, self.gaps)
        return np.concatenate([trend, waves.astype(np.float32)], axis=1)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of words. Each row has a single 1: at its level, at "any other", or at "missing"."""

    name: str
    levels: tuple[str, ...]
    gaps: bool

    @classmethod
    def fit(cls, name: str, cells: Array) -> CategoryColumn:
        """The most common levels of a sample of words; those that occur once are not among them."""
        counts = arrow("compute").value_counts(cells.drop_null()).to_pylist()
        ranked = sorted(counts, key=lambda entry: (-entry["counts"], entry["values"]))
        levels = tuple(entry["values"] for entry in ranked if entry["counts"] > 1)[: LEVELS - 1]
        return cls(name, levels, cells.null_count > 0)

    @property
    def width(self) -> int:
        """Levels, others, missing."""
        return len(self.levels) + 1 + self.gaps

    def encode(self, array: Array) -> Features:
        """[n, width]."""
        pa, pc = arrow(), arrow("compute")
        cells = words(array)
        place = pc.index_in(cells, value_set=pa.array(self.levels, pa.string()))
        codes = np.asarray(pc.fill_null(place, len(self.levels)), dtype=np.int64)
        if self.gaps:
            codes = np.where(np.asarray(cells.is_null()), len(self.levels) + 1, codes)
        hot = np.zeros((len(codes), self.width), dtype=np.float32)
        hot[np.arange(len(codes)), codes] = 1
        return hot


Column: TypeAlias = NumberColumn | DateColumn | CategoryColumn
"""A fitted column: `name`, `width` numbers per cell, and `encode(cells)` [n, width]."""

KINDS: dict[str, Any] = {"number": NumberColumn, "date": DateColumn, "category": CategoryColumn}


def describe(column: Column) -> dict[str, Any]:
    """A fitted column as JSON."""
    (kind,) = (name for name, cls in KINDS.items() if isinstance(column, cls))
    return {"kind": kind, **asdict(column)}


def restore(fields: Mapping[str, Any]) -> Column:
    """A fitted column from JSON."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    try:
        column: Column = KINDS[values.pop("kind")](**values)
    except (KeyError, TypeError) as error:
        raise DataError(f"a column of the saved pre-processing is damaged ({error})") from error
    return column


def robust_scale(values: Numbers) -> tuple[float, float]:
    """Median and scale: the interquartile range / 1.35, the standard deviation of a normal law.

    Where both quartiles are equal, the scale is half the range, or 1 for a constant.
    """
    known = values[~np.isnan(values)]
    low, middle, high = np.percentile(known, [25, 50, 75])
    scale = (high - low) / NORMAL_QUARTILES if high > low else float(np.ptp(known)) / 2 or 1.0
    return float(middle), float(scale)


def _scaled(values: Numbers, centre: float, scale: float, gaps: bool) -> Features:
    z = (values - centre) / scale
    squeezed = np.nan_to_num(z / np.sqrt(1 + (z / 3) ** 2))
    marks = [np.isnan(values).astype(np.float32)] if gaps else []
    return np.stack([squeezed.astype(np.float32), *marks], axis=1)


def seconds_of(array: Array, form: str) -> Numbers:
    """Dates as seconds since 1970, read as `form` says; NaN where a cell is no date."""
    if not form or not is_text(array):
        return numbers(array)
    cells = words(array).to_pandas().astype(object)
    moments = pandas().to_datetime(cells, format=form, errors="coerce", utc=True)
    exact = moments.to_numpy(dtype="datetime64[us]")
    seconds: Numbers = np.where(np.isnat(exact), np.nan, exact.astype(np.int64) * 1e-6)
    return seconds
