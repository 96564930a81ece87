"""Every way to train that the paper compares, and what its readers compare with today."""

from .contract import (
    Criterion,
    Method,
    Problem,
    Sampling,
    Stateful,
    View,
    Weighed,
    evenly,
    plain_losses,
    weighed_by,
)

__all__ = [
    "Criterion",
    "Method",
    "Problem",
    "Sampling",
    "Stateful",
    "View",
    "Weighed",
    "evenly",
    "plain_losses",
    "weighed_by",
]
