"""A contact: an operation y = op(x, W) in which a parameter W first meets the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor
from torch.autograd.graph import GradientEdge

from .example_rows import Layout


class Transposed(NamedTuple):
    """A parameter seen through a transpose, as every linear layer sees its weight."""

    parameter: Tensor


# A parameter, its transpose, or the place in the graph of anything else that was made of some.
Origin = Tensor | Transposed | GradientEdge


class Contact(Protocol):
    """An operation y = op(x, W) of one pass: what scores and update need of it.

    edge:    the place of y in the graph; None once released.
    origins: where the gradients go, one per source.
    sources: the parameters, or what was made of them; for messages.
    func:    the operation; for messages.
    """

    edge: GradientEdge | None
    func: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of y."""
        ...

    @property
    def sources(self) -> Sequence[Tensor]:
        """The parameters, or what was made of them."""
        ...

    @property
    def origins(self) -> Sequence[Origin | None]:
        """Where each of `gradients` goes."""
        ...

    def roots(self) -> tuple[int, ...]:
        """The ids of the parameters."""
        ...

    def scores(
        self, values: Sequence[Tensor | None], g: Tensor, layout: Layout, n: int
    ) -> Tensor | None:
        """< g_i, (d op / d W) . V > per example, [n]; None where that is zero. values: V,
        of which None counts as zero."""
        ...

    def gradients(self, g: Tensor) -> Sequence[Tensor | None]:
        """One gradient per origin, given that at y."""
        ...

    def splits(self, layout: Layout) -> bool:
        """Whether the contact can be cut down to the rows of some examples."""
        ...

    def only(self, pick: Callable[[Tensor], Tensor]) -> Contact:
        """The contact on some of its rows."""
        ...

    def require_untouched(self) -> None:
        """Raise if what was captured has been written since the pass."""
        ...

    def release(self) -> None:
        """Forget the graph; keep what `scores` and `gradients` need."""
        ...
