"""Logistic regression with soft labels, for dense and sparse rows.

    minimise   sum_i w_i CE(q_i, softmax(x_i W + b)) + |W|^2 / (2 C)          by L-BFGS

scikit-learn's takes hard labels only; with hard labels this is the same problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .learner import Arrays, Fitted, Reals, Rows

ITERATIONS = 40


@dataclass(frozen=True, eq=False)
class SoftmaxModel:
    """coefficients [width, classes], intercepts [classes]."""

    coefficients: Reals
    intercepts: Reals
    kind: str = "softmax"

    def probabilities(self, rows: Rows) -> Reals:
        """[n, classes]."""
        from scipy.special import softmax

        scores: Reals = softmax(np.asarray(rows @ self.coefficients) + self.intercepts, axis=1)
        return scores

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """In 32 bits: more digits say nothing about a new row."""
        return {
            "coefficients": self.coefficients.astype(np.float32),
            "intercepts": self.intercepts.astype(np.float32),
        }

    @classmethod
    def of(cls, arrays: Arrays) -> SoftmaxModel:
        """The model with these arrays."""
        return cls(
            arrays["coefficients"].astype(np.float64), arrays["intercepts"].astype(np.float64)
        )


@dataclass(frozen=True)
class SoftmaxRegression:
    """`strength` is C: the larger, the closer to the labels."""

    strength: float = 1.0
    name: str = "logistic regression"

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> SoftmaxModel:
        """The model."""
        from scipy.optimize import minimize
        from scipy.special import log_softmax

        width, classes = rows.shape[1], labels.shape[1]
        cut, columns = width * classes, rows.T
        counted = weights[:, None] * labels

        def objective(values: Reals) -> tuple[float, Reals]:
            matrix, shift = values[:cut].reshape(width, classes), values[cut:]
            log_p = log_softmax(np.asarray(rows @ matrix) + shift, axis=1)
            loss = -float((counted * log_p).sum()) + float((matrix**2).sum()) / (2 * self.strength)
            rest = weights[:, None] * np.exp(log_p) - counted
            slope = np.asarray(columns @ rest) + matrix / self.strength
            return loss, np.concatenate([slope.ravel(), rest.sum(0)])

        first = np.zeros(cut + classes)
        if isinstance(start, SoftmaxModel):
            first = np.concatenate([start.coefficients.ravel(), start.intercepts])
        options = {"maxiter": ITERATIONS, "maxcor": 10, "ftol": 1e-6}
        found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options).x
        return SoftmaxModel(found[:cut].reshape(width, classes), found[cut:])
