"""How much better than plain training, and how sure that is.

classes      gain = accuracy ours - accuracy theirs, of the same test rows: with b rows only
             ours gets right, c only theirs, of n, each count raised by 1/2 (Agresti and Min,
             2005):   gain +- 1.96 sqrt(b + c - (b - c)^2 / n) / n
regression   gain = mean absolute error theirs - ours; 1.96 standard errors of the differences
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data import BatchOptions
from ..runs import Gain
from ..training import Outcome
from .predict import outputs
from .preparation import Prepared

METHODS = {"uniform": "plain", "random": "random weights"}
Z = 1.96


@dataclass(frozen=True, eq=False)
class Judged:
    """Per test row: right or not (1, 0), or the absolute error in the target's units."""

    values: npt.NDArray[np.float64]
    classes: bool

    @property
    def figure(self) -> float:
        """Accuracy, or mean absolute error."""
        return float(self.values.mean())

    @property
    def interval(self) -> float:
        """Half a 95% interval of the figure: Agresti and Coull's for an accuracy."""
        n = len(self.values)
        if not self.classes:
            return Z * float(self.values.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
        p = (self.values.sum() + Z**2 / 2) / (n + Z**2)
        return Z * float((p * (1 - p) / (n + Z**2)) ** 0.5)


def judge(prepared: Prepared, outcome: Outcome, options: BatchOptions) -> Judged:
    """The final model on the test part."""
    test = prepared.task.test
    found = np.concatenate([o.double().numpy() for o in outputs(outcome.model, test, options)])
    truth = test.truth.numpy()
    if prepared.classes:
        return Judged((found.argmax(1) == truth).astype(np.float64), classes=True)
    return Judged(np.abs(found - truth) * prepared.scale, classes=False)


def gain(method: str, ours: Judged, theirs: Judged) -> Gain:
    """How much better ours is than `method`."""
    n = len(ours.values)
    half: float | None = None
    if ours.classes:
        better = ours.figure - theirs.figure
        b = float(np.sum(ours.values > theirs.values)) + 0.5
        c = float(np.sum(ours.values < theirs.values)) + 0.5
        half = Z * float(np.sqrt(b + c - (b - c) ** 2 / (n + 2))) / (n + 2)
    else:
        differences = theirs.values - ours.values
        better = float(differences.mean())
        if n > 1:
            half = Z * float(differences.std(ddof=1)) / n**0.5
    return Gain(method, METHODS[method], theirs.figure, better, half)
