"""A layer as autograd has recorded it: what it needs for scores and for weighted gradients.

A node of the graph keeps the inputs of its operation y = op(x, W, b). From those, and the gradient g
at y, come

    tangent     (d op / d W) . V          the result moved along the clean gradient V, x held fixed
    gradients   (d op / d W)' . g         for each parameter
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor


class Use(NamedTuple):
    """An aligned parameter as the argument of an operation, as it is or transposed."""

    place: int  # among the aligned parameters
    transposed: bool


Uses = Sequence[Use | None]  # one per argument that could need a gradient


@dataclass(eq=False)
class Layer:
    """One operation with parameters.

    inputs:    of the operation, with the rows of its result. fixed: the rest that it needs.
    divisible: whether it can be cut to some of its rows; not where a parameter has rows of its own.
    """

    uses: tuple[Use | None, ...]
    inputs: tuple[Tensor, ...]
    fixed: tuple[Any, ...] = ()
    divisible: bool = True

    def tangent(self, values: Sequence[Tensor | None], g: Tensor) -> Tensor:
        """The tangent of the result; one value per use, None for an argument that is no parameter."""
        raise NotImplementedError

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """One gradient per use."""
        raise NotImplementedError
