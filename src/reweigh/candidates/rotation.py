"""Sparse rows with very many columns as short dense ones, in which a linear model is the same.

A penalised linear model lies in the span of the rows it learns. With X = U S V' the landmark rows,
z = x V = x X' U / S has as many columns as there are landmarks, and |w| and x w stay what they were:

    fit on z, then   coefficients of x = V coefficients of z

With all rows as landmarks this is exact; with some of them it is Nystroem's approximation. It pays
since texts are few beside their n-grams, and since every fold fits on the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ..rng import Draws
from .learner import Reals
from .ridge import RidgeModel
from .softmax_regression import SoftmaxModel

Linear = TypeVar("Linear", bound=SoftmaxModel | RidgeModel)
MOST = 2000
"""Landmarks; finding them takes time with their third power."""
SMALLEST = 1e-5
"""Of the singular values, beside the largest: under it they are roundings."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """landmarks [l, width] sparse; turned [l, rank] is U / S."""

    landmarks: Any
    turned: Reals

    @classmethod
    def of(cls, landmarks: Any) -> Rotation:
        """From the rows to be spanned."""
        values, vectors = np.linalg.eigh((landmarks @ landmarks.T).toarray().astype(np.float64))
        singular = np.sqrt(np.maximum(values, 0))
        kept = singular > SMALLEST * singular.max()
        return cls(landmarks, vectors[:, kept] / singular[kept])

    @classmethod
    def over(cls, checked: Any, train: Any, *, seed: int) -> Rotation:
        """With all checked rows as landmarks, and as many train rows as there is room for."""
        from scipy.sparse import vstack

        room = max(0, MOST - checked.shape[0])
        some = np.sort(Draws(seed, "landmarks").permutation(train.shape[0])[:room])
        return cls.of(vstack([checked, train[some]]).tocsr())

    def __call__(self, rows: Any) -> Reals:
        """[n, rank]."""
        parts = [
            (rows[start : start + MOST] @ self.landmarks.T).toarray() @ self.turned
            for start in range(0, rows.shape[0], MOST)
        ]
        return np.concatenate([np.empty((0, self.turned.shape[1])), *parts])

    def back(self, model: Linear) -> Linear:
        """The same model, of the rows before the rotation."""
        coefficients = np.asarray(self.landmarks.T @ (self.turned @ model.coefficients))
        return replace(model, coefficients=coefficients)
