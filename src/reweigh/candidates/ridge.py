"""Ridge regression: a linear model of numbers, in closed form.

minimise   sum_i w_i (y_i - x_i b - a)^2 + |b|^2 / C,     a is not penalised

b = (X' W X + I / C)^-1 X' W y   with x and y centred by their weighted means
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .learner import Arrays, Fitted, Reals, Rows


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """coefficients [width, 1], intercepts [1]."""

    coefficients: Reals
    intercepts: Reals
    kind: str = "ridge"

    def probabilities(self, rows: Rows) -> Reals:
        """[n, 1] numbers."""
        return np.asarray(rows @ self.coefficients + self.intercepts)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """In 32 bits: more digits say nothing about a new row."""
        return {
            "coefficients": self.coefficients.astype(np.float32),
            "intercepts": self.intercepts.astype(np.float32),
        }

    @classmethod
    def of(cls, arrays: Arrays) -> RidgeModel:
        """The model with these arrays."""
        return cls(
            arrays["coefficients"].astype(np.float64), arrays["intercepts"].astype(np.float64)
        )


@dataclass(frozen=True)
class Ridge:
    """`strength` is C: the larger, the closer to the numbers."""

    strength: float = 1.0
    name: str = "linear regression"

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> RidgeModel:
        """The model; labels [n, 1]."""
        x = np.asarray(rows, dtype=np.float64)
        centre, middle = weights @ x / weights.sum(), weights @ labels / weights.sum()
        x = x - centre
        weighted = x.T * weights
        system = weighted @ x + np.eye(x.shape[1]) / self.strength
        coefficients = np.linalg.solve(system, weighted @ (labels - middle))
        return RidgeModel(coefficients, middle - centre @ coefficients)
