"""Means over seeds with 95% intervals.

    interval = t(0.975, n - 1) * s / sqrt(n)      half the width; s the standard deviation of n values

t is the quantile of Student's distribution with n - 1 degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Summary:
    """Of `count` seeds; `interval` is half the width, None for one seed, which has no spread."""

    mean: float
    interval: float | None
    count: int


def summarise(values: Sequence[float]) -> Summary:
    """The summary of one value or more.

    >>> round(summarise([0.6, 0.7, 0.8]).interval, 4)
    0.2484
    """
    from scipy.special import stdtrit

    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Summary(mean, None, count)
    interval = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / count**0.5)
    return Summary(mean, interval, count)
