"""How often each source of labels (an annotator, a rule, a file) is wrong, shrunk towards the others.

    k_s, n_s    expected errors of source s: the sum of p_wrong over its rows; its rows
    prior       Beta(a, b) over the sources, from the mean and the spread of their rates k_s / n_s:
                the spread that sampling alone makes, sum of p_wrong (1 - p_wrong) / n_s^2 and
                rate (1 - rate) / n_s, is taken off; what is left is the sources' own
    rate        (a + k_s) / (a + b + n_s)
    interval    the middle 95% of Beta(a + k_s, b + n_s - k_s)

    weight      max(0, 1 - rate K / (K - 1)), K classes, divided by its mean over rows: what the labels of
                the source say beyond chance. A label drawn at random is wrong with (K - 1) / K, and
                says nothing

A source with few rows is drawn to the mean of all; one with many stands for itself. The intervals are of
the sampling of rows; they take p_wrong as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals

FIRMEST = 1000.0
"""a + b at most: sources that do not differ are as good as a thousand rows of evidence."""


@dataclass(frozen=True, eq=False)
class SourceRate:
    """By source: rows, the rate with its interval, and the rate before shrinking."""

    rows: Places
    rate: Reals
    low: Reals
    high: Reals
    own: Reals


def source_rates(p_wrong: Reals, source: Places, sources: int) -> SourceRate:
    """From rows whose sources are 0 ... sources - 1; every one has a row."""
    from scipy.stats import beta

    rows = np.bincount(source, minlength=sources)
    errors = np.bincount(source, p_wrong, sources)
    own, mean = errors / rows, float(p_wrong.mean())
    noise = np.bincount(source, p_wrong * (1 - p_wrong), sources) / rows**2
    noise = np.maximum(noise, mean * (1 - mean) / rows)
    spread = max(float(np.average((own - mean) ** 2 - noise, weights=rows)), 1e-9)
    firmness = float(np.clip(mean * (1 - mean) / spread - 1, 1.0, FIRMEST))
    a, b = max(mean * firmness, 1e-3), max((1 - mean) * firmness, 1e-3)
    rate = (a + errors) / (a + b + rows)
    low, high = (beta.ppf(q, a + errors, b + rows - errors) for q in (0.025, 0.975))
    return SourceRate(rows, rate, low, high, own)


def source_weights(rates: SourceRate, classes: int) -> Reals:
    """[sources] what a row of each counts; 1 each if all labels say nothing."""
    said = np.maximum(0.0, 1 - rates.rate * classes / max(classes - 1, 1))
    mean = float(np.average(said, weights=rates.rows))
    return said / mean if mean > 0 else np.ones(len(said))
