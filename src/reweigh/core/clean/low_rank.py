"""The clean gradient of linear layers, kept as two factors that need not be multiplied out.

For y = W x + b a clean batch of k rows gives V = C'B, with B [k, in] the inputs and C [k, out] the
gradients at the outputs. A score needs V in one place only, and there the sum can be taken the other
way round:

    g_i . (V a_i + v)  =  sum_k (g_i . c_k) (b_k . a_i + 1)

which costs n k (in + out) products instead of n in out, saves the k in out of forming V, and keeps
k (in + out) numbers instead of in out. A handful of clean examples makes that far the smaller; where
it is not, and for layers of any other kind, V is formed as ever.

Whoever looks at `direction.values` is given V; only then is it multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, overload

from torch import Tensor


class Factors(NamedTuple):
    """inputs [k, in] and gradients [k, out], whose product is a weight's gradient (its transpose, for
    a weight that is used as it is); for a bias the inputs are ones and not kept."""

    inputs: Tensor | None
    gradients: Tensor
    transposed: bool

    def product(self) -> Tensor:
        """Multiplied out, in the shape of the parameter."""
        if self.inputs is None:
            return self.gradients.sum(0)
        if self.transposed:
            return self.gradients.t() @ self.inputs
        return self.inputs.t() @ self.gradients


class Values(Sequence[Tensor]):
    """A gradient, parameter by parameter, of which some parts are factors until they are looked at."""

    def __init__(self, parts: Sequence[Tensor | Factors]) -> None:
        self._parts = list(parts)

    def factors(self, place: int) -> Factors | None:
        """What the value at `place` is the product of, if that is all there is of it."""
        part = self._parts[place]
        return part if isinstance(part, Factors) else None

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, place: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        part = self._parts[place]
        if isinstance(part, Factors):
            part = self._parts[place] = part.product()
        return part

    def __len__(self) -> int:
        return len(self._parts)
