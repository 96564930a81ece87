"""Means over seeds with 95% intervals: Student's t with n - 1 degrees of freedom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Of `count` seeds; `interval` is half the width, None for one seed, which has no spread."""

    mean: float
    interval: float | None
    count: int


def summarise(values: list[float]) -> Summary:
    """The summary of one value or more.

    >>> round(summarise([0.6, 0.7, 0.8]).interval, 4)
    0.2484
    """
    from scipy.special import stdtrit

    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return Summary(mean, None, count)
    deviation = (sum((value - mean) ** 2 for value in values) / (count - 1)) ** 0.5
    return Summary(mean, float(stdtrit(count - 1, 0.975) * deviation / count**0.5), count)
