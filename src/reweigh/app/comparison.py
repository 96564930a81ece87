"""How much better than plain training, and how sure that is.

classes      gain = accuracy ours - accuracy theirs, of the same test rows: with b rows only
             ours gets right, c only theirs, of n, each count raised by 1/2 (Agresti and Min,
             2005):   gain +- 1.96 sqrt(b + c - (b - c)^2 / n) / n
regression   gain = mean absolute error theirs - ours; 1.96 standard errors of the differences
"""

from __future__ import annotations

import numpy as np

from ..runs import MethodComparison
from .final_outputs import TestOutputs

METHODS = {"uniform": "plain", "random": "random weights"}
Z = 1.96


def figure(judged: TestOutputs) -> float:
    """Accuracy, or mean absolute error."""
    return float(judged.values.mean())


def interval(judged: TestOutputs) -> float | None:
    """Half a 95% interval of the figure: Agresti and Coull's for an accuracy."""
    n = len(judged.values)
    if judged.regression:
        return Z * float(judged.values.std(ddof=1)) / n**0.5 if n > 1 else None
    p = (judged.values.sum() + Z**2 / 2) / (n + Z**2)
    return Z * float((p * (1 - p) / (n + Z**2)) ** 0.5)


def gain(method: str, ours: TestOutputs, theirs: TestOutputs) -> MethodComparison:
    """How much better ours is than `method`."""
    n = len(ours.values)
    half: float | None = None
    if not ours.regression:
        better = figure(ours) - figure(theirs)
        b = float(np.sum(ours.values > theirs.values)) + 0.5
        c = float(np.sum(ours.values < theirs.values)) + 0.5
        half = Z * float(np.sqrt(b + c - (b - c) ** 2 / (n + 2))) / (n + 2)
    else:
        differences = theirs.values - ours.values
        better = float(differences.mean())
        if n > 1:
            half = Z * float(differences.std(ddof=1)) / n**0.5
    return MethodComparison(method, METHODS[method], figure(theirs), better, half)
