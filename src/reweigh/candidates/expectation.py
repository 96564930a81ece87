"""What a choice is worth on new rows, where only a part of the m checked rows judged it.

A network that takes long to train is judged on k of the m rows, quick candidates on all of them. These k may be
easy ones or hard ones, which the quick candidates tell:

    y_i        what the choice got right, on k rows
    x_i        how easy a row is, on all m: the mean of what the candidates judged on all rows got right
    b          the slope of y on x, over the k rows
    figure     mean_k y + b (mean_m x - mean_k x)
    variance   var(y - b x) / k + b^2 var(x) / m          (Cochran, Sampling Techniques, chapter 12)

It is unbiased but for terms of order 1 / k, however much better the choice is than the quick candidates. `rows` is
how many rows a plain mean needs to be as exact: k where x tells nothing, m where it tells all. The interval of an
accuracy is that of Agresti and Coull for so many rows; where k < m, with Student's t of k - 2 degrees for 1.96.
With k = m the figure is the plain mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .learner import Reals

Z = 1.96
FEWEST = 8
"""Rows under which a slope is not asked for."""


@dataclass(frozen=True)
class Expectation:
    """A mean, half its 95% interval (None where one row says nothing), and the rows it is worth."""

    figure: float
    interval: float | None
    rows: float


def easiness(rights: Mapping[str, Reals]) -> Reals | None:
    """[m] the mean over the candidates that all rows judged; None if there are none."""
    full = [right for right in rights.values() if not np.isnan(right).any()]
    return np.mean(full, axis=0) if full else None


def standing(rights: Mapping[str, Reals]) -> dict[str, float]:
    """Figures that can be compared: which rows a candidate was given counts neither for nor against it."""
    easy = easiness(rights)
    shares = all(np.nanmin(right) >= 0 for right in rights.values())
    return {name: expect(right, easy, shares=shares).figure for name, right in rights.items()}


def expect(values: Reals, easy: Reals | None = None, *, shares: bool = True) -> Expectation:
    """From values [m], NaN where nothing judged; `shares`: they are right or not, in [0, 1]."""
    known = ~np.isnan(values)
    y = values[known]
    figure, rows, reach = float(y.mean()), float(len(y)), Z
    if easy is not None and FEWEST <= len(y) < len(values):
        figure, rows = _corrected(y, easy[known], easy)
        reach = _student(len(y) - 2)
    if shares:
        figure = min(1.0, max(0.0, figure))
        p = (figure * rows + Z**2 / 2) / (rows + Z**2)
        return Expectation(figure, reach * float(np.sqrt(p * (1 - p) / (rows + Z**2))), rows)
    half = reach * float(y.std(ddof=1)) / rows**0.5 if len(y) > 1 else None
    return Expectation(figure, half, rows)


def _student(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))


def _corrected(y: Reals, x: Reals, every: Reals) -> tuple[float, float]:
    """The figure, and how many rows it is worth."""
    k, m, mean = len(y), len(every), float(y.mean())
    spread = float(((x - x.mean()) ** 2).sum())
    alone = float(y.var(ddof=1)) / k
    if not spread or not alone:
        return mean, float(k)
    slope = float((x - x.mean()) @ (y - mean)) / spread
    left = y - mean - slope * (x - x.mean())
    variance = float(left @ left) / (k - 2) / k + slope**2 * float(every.var(ddof=1)) / m
    if variance >= alone:  # x tells nothing
        return mean, float(k)
    return mean + slope * float(every.mean() - x.mean()), min(k * alone / variance, float(m))
