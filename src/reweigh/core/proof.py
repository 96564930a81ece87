"""Proofs: the one place that compares a fast way with autograd, and says when to look again.

The proof of scores is their definition, transposed. With random factors r, one plain backward gives
grad sum_i r_i f_i, and

    sum_i r_i score_i  =  < grad sum_i r_i f_i , grad G >

must hold. It costs one backward, works where a double backward does not, and catches what no list of
modules shows: in-batch negatives, custom norms, custom autograd functions whose backward is not the
derivative of their forward.

A model can change, so what was found out by looking is looked at again: when the operations change,
and at the 2nd, 4th, 8th, ... use and every 128th.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ..errors import UnsupportedModelError
from .model import Direction, ModelView, dot, unhooked

T = TypeVar("T")

# Relative to the size of what is compared. Large against rounding, small against being wrong: a
# coupling or a missing term is off by tenths.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 5e-2}
# Below this share of the whole gradient, that of one parameter may be nothing but rounding errors,
# as for a bias that a norm takes away again.
_NEGLIGIBLE = 1e-3
MOST_RECORDS = 64  # a model that never takes the same path twice must not fill the memory


def tolerance(kind: torch.dtype) -> float:
    """The relative error below which two results of this precision count as the same."""
    return _TOLERANCE.get(kind, 1e-1)


@dataclass
class Record(Generic[T]):
    """Something found out by looking, how often it was used, and the use that looks again."""

    value: T
    uses: int = 0
    next_look: int = 1

    def due(self) -> bool:
        """Whether the coming use must look again."""
        return self.uses + 1 >= self.next_look


class Records(dict[Hashable, Record[T]]):
    """Records by what they depend on; bounded."""

    def looked(self, key: Hashable, value: T) -> None:
        """Keep what this use has found by looking."""
        if len(self) > MOST_RECORDS:
            self.clear()
        before = self.get(key)
        uses = 1 if before is None else before.uses + 1
        self[key] = Record(value, uses, next_look(uses))


def next_look(uses: int) -> int:
    """The use after `uses` that looks again: a power of two, or a multiple of 128."""
    return min(1 << uses.bit_length(), (uses // 128 + 1) * 128)


def probe(losses: Tensor) -> Tensor:
    """Random factors [n], +-0.5 to +-1.5: the same every time, from a generator of their own."""
    generator = torch.Generator().manual_seed(20180611)
    draw = torch.rand(len(losses), 2, generator=generator, dtype=torch.float64, device="cpu")
    factors = (draw[:, 0] + 0.5) * torch.where(draw[:, 1] < 0.5, -1.0, 1.0)
    return factors.to(losses)


@dataclass(frozen=True)
class Proof:
    """How far scores miss a plain backward along random factors.

    gap:  sum_i r_i score_i - <grad sum_i r_i f_i, v>, summed over the processes that share a batch.
    size: |grad sum_i r_i f_i|^2, likewise: what the gap is small against.
    """

    gap: Tensor
    size: Tensor


def score_proof(
    weighted: Callable[[Tensor], Tensor], losses: Tensor, scores: Tensor, direction: Direction
) -> Proof:
    """Compare scores [n] with a plain backward of `weighted(r)`, the scalar sum_i r_i f_i."""
    factors = probe(losses)
    truth = _gradient(weighted(factors), None, direction.parameters)
    gap = (factors * scores).sum() - dot(truth, direction.values)
    return Proof(gap, dot(truth, truth))


def require_scores(
    name: str, view: ModelView, proof: Proof, losses: Tensor, direction: Direction
) -> None:
    """Raise unless the scores of a back-end agree with a plain backward."""
    close = tolerance(view.precision(losses))
    gap, bound = proof.gap.abs(), close * proof.size.sqrt() * direction.norm_squared().sqrt()
    # Not `gap > bound`: a NaN must not pass here, unless there is nothing to compare with.
    if not gap <= bound and torch.isfinite(bound):
        raise UnsupportedModelError(
            f"{name} disagrees with autograd on {type(view.model).__name__} by {float(gap):.3g}; "
            f"expected equal scores: look for a custom autograd.Function or in-place writes to "
            f"views, or use backend='auto'"
        )


def require_update(
    view: ModelView,
    losses: Tensor,
    scores: Tensor,
    direction: Direction,
    update: Callable[[Tensor], Sequence[Tensor | None]],
) -> None:
    """Raise unless autograd finds the gradient that ghost assembles, and its scores.

    update: weights -> the assembled gradient of each aligned parameter.
    """
    factors, close = probe(losses), tolerance(view.precision(losses))
    truth = _gradient(losses, factors, direction.parameters)
    size = dot(truth, truth).sqrt()
    assembled = update(factors)
    for name, right, mine in zip(direction.names, truth, assembled, strict=True):
        error = torch.linalg.vector_norm(right if mine is None else right - mine)
        if not error <= close * torch.maximum(torch.linalg.vector_norm(right), size * _NEGLIGIBLE):
            raise UnsupportedModelError(
                f"parameter {name!r} is used in a way ghost cannot see (a custom autograd.Function "
                f"or code outside PyTorch): use backend='auto' or 'double_backward'"
            )
    gap = (dot(truth, direction.values) - (factors * scores).sum()).abs()
    if not gap <= close * size * direction.norm_squared().sqrt():
        raise UnsupportedModelError(
            f"ghost's scores miss autograd's by {float(gap):.3g}: use backend='auto'"
        )


def same_gradient(values: Iterable[Tensor], scalar: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether `values` are the gradient of `scalar` by autograd; the graph is left as it is."""
    truth = _gradient(scalar, None, parameters)
    close = max(tolerance(p.dtype) for p in parameters)
    size = dot(truth, truth).sqrt()
    for right, mine in zip(truth, values, strict=True):
        bound = torch.maximum(torch.linalg.vector_norm(right), size * _NEGLIGIBLE)
        if not torch.linalg.vector_norm(right - mine) <= close * bound:
            return False
    return True


def require_same_losses(view: ModelView, alone: Tensor, joined: Tensor) -> None:
    """Raise unless the losses of a batch are the same whoever else is in the batch."""
    close = tolerance(view.precision(joined))
    size = torch.linalg.vector_norm(alone) + close * len(alone) ** 0.5
    if not torch.linalg.vector_norm(alone - joined.detach()) <= close * size:
        raise UnsupportedModelError("the losses depend on who else is in the batch")


def _gradient(
    outputs: Tensor, factors: Tensor | None, parameters: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradient by autograd, dense, without the hooks of the parameters; the graph stays."""
    with unhooked(parameters):
        gradient = torch.autograd.grad(
            outputs, list(parameters), factors, retain_graph=True, materialize_grads=True,
            allow_unused=True,
        )  # fmt: skip
    return tuple(g.to_dense() if g.is_sparse else g for g in gradient)
