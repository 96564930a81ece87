"""How much of a gradient is rounding, whatever the precision of the pass, and whoever chose it.

Backward is linear: grad (c f) = c grad f, for examples that touch each other as well as for those that
do not. What is missing from it is rounding. So one more backward with a uniform factor c measures

    rounding = | grad (c f) / c - grad f |

of every gradient, also where no type of a parameter or loss tells it: autocast inside of the model,
float32 inside of a float64 model, a kernel with a precision of its own. Two ways to one gradient may
differ by a few times as much. Cost: one backward, and only where a strict comparison has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

# The relative error below which two results count as the same. Large against rounding, small against
# being wrong: a coupling or a missing term is off by tenths.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 5e-2}
# The factor c: no power of two, so that everything is rounded anew.
UNIFORM = 0.7390851332151607
_MARGIN = 8  # rounding errors are measured once, and of small tensors they scatter
_MOST = 1e-1  # beyond this it is no rounding: a backward that is not linear, such as clipping


def tolerance(kind: torch.dtype) -> float:
    """The relative error below which two results of this precision count as the same."""
    return _TOLERANCE.get(kind, 1e-1)


def strict(kind: torch.dtype) -> float:
    """As `tolerance`, of float32 at most: coarser types have their rounding measured."""
    return min(tolerance(kind), _TOLERANCE[torch.float32])


def explained(rounding: float) -> float:
    """The relative error that a measured relative rounding explains."""
    return min(_MARGIN * rounding, _MOST)


class Rounding:
    """The rounding of some gradients, measured when it is first asked for.

    gradients: of some f. again(c): those of c f.
    """

    def __init__(
        self, gradients: Sequence[Tensor], again: Callable[[float], Sequence[Tensor]]
    ) -> None:
        self._gradients, self._again = gradients, again

    @classmethod
    def measured(cls, errors: list[Tensor], sizes: list[Tensor]) -> Rounding:
        """From the rounding of each gradient and its length, measured already."""
        made = cls(sizes, lambda c: ())  # of a number, the length is the number
        made.errors = errors
        return made

    @cached_property
    def errors(self) -> list[Tensor]:
        """Of each gradient, absolute."""
        scaled = self._again(UNIFORM)
        return [
            torch.linalg.vector_norm(mine.double() / UNIFORM - one.double())
            for mine, one in zip(scaled, self._gradients, strict=True)
        ]

    @cached_property
    def overall(self) -> float:
        """Of all gradients as one vector, relative."""
        sizes = [torch.linalg.vector_norm(one.double()) for one in self._gradients]
        size, error = (float(torch.stack(x).norm()) for x in (sizes, self.errors))
        return error / size if size > 0 else 0.0

    @property
    def plausible(self) -> bool:
        """Whether it is small enough to be rounding."""
        return _MARGIN * self.overall <= _MOST

    def close(self) -> float:
        """The relative error that rounding explains."""
        return explained(self.overall)

    def allowed(self, place: int, like: Tensor) -> Tensor:
        """The error that rounding explains in a gradient, or in one of the same rows like it."""
        size: Tensor = torch.linalg.vector_norm(self._gradients[place].double())
        own = _MARGIN * self.errors[place] / size if size > 0 else size
        likewise: Tensor = torch.linalg.vector_norm(like.double())
        return own.clamp(min=self.close(), max=_MOST) * likewise

    def explains(self, place: int, error: Tensor) -> bool:
        """Whether a difference in one gradient is no more than its own rounding."""
        return self.plausible and bool(error <= _MARGIN * self.errors[place])
