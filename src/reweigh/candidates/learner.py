"""What a plain model must be able to do: learn soft labels with weights, and say probabilities.

    rows      [n, width] features
    labels    [n, classes] soft: each row sums to one; a hard label is a row with a single 1
              [n, 1] in a regression: the number itself, and what a model says is a number, too
    weights   [n] what a row counts

`Fitted.arrays()` is all of a fitted model: it is saved as it is, and read without running any code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Reals: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]
Labels: TypeAlias = npt.NDArray[Any]
"""[n] whole numbers are classes, other numbers those of a regression."""
Rows: TypeAlias = Any
"""A dense array [n, width]; for a softmax model also a sparse matrix of that shape."""
Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Fitted(Protocol):
    """A fitted model."""

    @property
    def kind(self) -> str:
        """What its arrays are: "softmax" or "trees"."""
        ...

    def probabilities(self, rows: Rows) -> Reals:
        """[n, classes]."""
        ...

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything it is made of."""
        ...


class Learner(Protocol):
    """A way to fit one."""

    @property
    def name(self) -> str:
        """Some words."""
        ...

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> Fitted:
        """The model. `start`, fitted to nearly the same labels, may save time and nothing else."""
        ...


def are_numbers(labels: Labels) -> bool:
    """Whether these are the targets of a regression."""
    return labels.dtype.kind == "f"


def as_learnt(labels: Labels, classes: int) -> Reals:
    """Labels [n] as a model learns them: [n, classes], or [n, 1] in a regression."""
    return labels[:, None] if are_numbers(labels) else one_hot(labels, classes)


def one_hot(labels: Places, classes: int) -> Reals:
    """[n, classes] with a single 1 in each row."""
    return np.eye(classes)[labels]
