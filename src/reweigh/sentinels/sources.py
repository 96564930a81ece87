"""How often each source of labels (an annotator, a rule, a file) is wrong, shrunk towards the others.

    L_i         p_i / (1 - p_i) over mean p / (1 - mean p): how much likelier row i is if its label is wrong
                than if it is right, from p_i = p_wrong. It does not know the source
    likelihood  of a rate r of source s: the product over its rows of r L_i + 1 - r
    prior       Beta(a, b) over the sources: the mean and firmness a + b with the largest likelihood of all
    rate        the mean of likelihood times prior, over r;  interval  its middle 95%
    own         the mean of p_wrong over its rows, for comparison

Where p_wrong is sure, this counts errors. Where it is not, the mean of p_wrong would make all sources look alike:
a doubtful row is doubtful for its looks, whoever labelled it.

    weight      max(0, 1 - rate K / (K - 1)), K classes, divided by its mean over rows: what the labels of
                the source say beyond chance. A label drawn at random is wrong with (K - 1) / K, and
                says nothing

A source with few rows is drawn to the mean of all; one with many stands for itself. The intervals are of the
sampling of rows; they take p_wrong to be calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals

GRID, AT_ONCE = 400, 10_000
"""Rates that are tried; rows at a time."""
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
    from scipy.special import logsumexp, softmax

    rows = np.bincount(source, minlength=sources)
    own = np.bincount(source, p_wrong, sources) / rows
    rates = (np.arange(GRID) + 0.5) / GRID
    likely = _log_likelihoods(p_wrong, source, sources, rates)
    mean = float(np.clip(p_wrong.mean(), 0.01, 0.99))
    priors = [
        _log_beta(rates, around, firmness)
        for around in _around(mean)
        for firmness in np.geomspace(1.0, FIRMEST, 11)
    ]
    best = max(priors, key=lambda prior: float(logsumexp(likely + prior, axis=1).sum()))
    posterior = softmax(likely + best, axis=1)
    below = np.cumsum(posterior, axis=1)
    low, high = (rates[np.minimum((below < q).sum(1), GRID - 1)] for q in (0.025, 0.975))
    return SourceRate(rows, posterior @ rates, low, high, own)


def _log_likelihoods(p_wrong: Reals, source: Places, sources: int, rates: Reals) -> Reals:
    """[sources, GRID]."""
    p, mean = np.clip(p_wrong, 1e-6, 1 - 1e-6), float(np.clip(p_wrong.mean(), 0.01, 0.99))
    ratio = p / (1 - p) * (1 - mean) / mean
    found = np.zeros((sources, GRID))
    for start in range(0, len(p), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        np.add.at(found, source[here], np.log(ratio[here, None] * rates + 1 - rates))
    return found


def _around(mean: float) -> Reals:
    """Means of a prior: odds from a quarter to four times those of the mean of p_wrong."""
    odds = mean / (1 - mean) * np.geomspace(0.25, 4, 17)
    return np.asarray(odds / (1 + odds))


def _log_beta(rates: Reals, mean: float, firmness: float) -> Reals:
    """[GRID] the log of Beta's density, up to sum one over the grid."""
    from scipy.special import log_softmax

    a, b = mean * firmness, (1 - mean) * firmness
    return np.asarray(log_softmax((a - 1) * np.log(rates) + (b - 1) * np.log1p(-rates)))


def source_weights(rates: SourceRate, classes: int) -> Reals:
    """[sources] what a row of each counts; 1 each if all labels say nothing."""
    said = np.maximum(0.0, 1 - rates.rate * classes / max(classes - 1, 1))
    mean = float(np.average(said, weights=rates.rows))
    return said / mean if mean > 0 else np.ones(len(said))
