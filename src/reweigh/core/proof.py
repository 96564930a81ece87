"""Proofs: the one place that compares a fast way with autograd, and says when to look again.

The proof of scores is their definition, transposed. With random factors r, one plain backward gives
grad sum_i r_i f_i, and

    sum_i r_i score_i  =  < grad sum_i r_i f_i , grad G >

must hold. It costs one backward, works where a double backward does not, and catches what no list of
modules shows: in-batch negatives, custom norms, custom autograd functions whose backward is not the
derivative of their forward. Two results are the same if they differ by less than rounding explains
(rounding.py).

A model can change, so what was found out by looking is looked at again: when the operations change,
and at the 2nd, 4th, 8th, ... use and every 128th.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ..errors import UnsupportedModelError
from .model import Direction, ModelView, dot, placed_like, unhooked
from .rounding import UNIFORM, Rounding, explained, strict, tolerance

T = TypeVar("T")

# Below this share of the whole gradient, that of one parameter may be nothing but rounding errors,
# as for a bias that a norm takes away again.
_NEGLIGIBLE = 1e-3
MOST_RECORDS = 64  # a model that never takes the same path twice must not fill the memory


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
    """Random factors, one per loss, +-0.5 to +-1.5: the same every time, from their own generator."""
    generator = torch.Generator().manual_seed(20180611)
    draw = torch.rand(*losses.shape, 2, generator=generator, dtype=torch.float64, device="cpu")
    factors = (draw[..., 0] + 0.5) * torch.where(draw[..., 1] < 0.5, -1.0, 1.0)
    return factors.to(losses)


def half_probe(losses: Tensor) -> Tensor:
    """As `probe`, with a factor of zero for half of the examples, drawn at random, too."""
    factors = probe(losses)
    generator = torch.Generator().manual_seed(20180612)
    order = torch.randperm(len(losses), generator=generator, device="cpu")
    factors[order[: len(losses) // 2].to(factors.device)] = 0
    return factors


@dataclass(frozen=True)
class Proof:
    """How far scores miss a plain backward along random factors.

    gap:      sum_i r_i score_i - <grad sum_i r_i f_i, v>, summed over the processes that share a batch.
    size:     |grad sum_i r_i f_i|^2, likewise: what the gap is small against.
    rounding: the squared rounding error of that gradient, likewise.
    """

    gap: Tensor
    size: Tensor
    rounding: Tensor

    def row(self) -> Tensor:
        """The three numbers; those of several processes or chunks can be added."""
        return torch.stack([self.gap, self.size, self.rounding])

    def close(self, kind: torch.dtype) -> float:
        """The relative error that rounding explains."""
        overall = float(self.rounding / self.size) ** 0.5 if self.size > 0 else 0.0
        return max(strict(kind), explained(overall))


def score_proof(
    weighted: Callable[[Tensor], Tensor], losses: Tensor, scores: Tensor, direction: Direction
) -> Proof:
    """Compare scores [n] with a plain backward of `weighted(r)`, the scalar sum_i r_i f_i."""
    factors = probe(losses)
    truth = _gradient(weighted(factors), None, direction.parameters)
    gap = (factors * scores).sum() - direction.inner(truth, direction.values)
    scaled = _gradient(weighted(factors * UNIFORM), None, direction.parameters)
    rounded = [b.double() / UNIFORM - a.double() for a, b in zip(truth, scaled, strict=True)]
    size, rounding = direction.inner(truth, truth), direction.inner(rounded, rounded)
    return Proof(gap.double(), size.double(), rounding)


def require_scores(
    name: str, view: ModelView, proof: Proof, losses: Tensor, direction: Direction
) -> None:
    """Raise unless the scores of a back-end agree with a plain backward."""
    close = proof.close(view.precision(losses))
    gap, bound = proof.gap.abs(), close * proof.size.sqrt() * direction.norm_squared().sqrt()
    # Not `gap > bound`: a NaN must not pass here, unless there is nothing to compare with.
    if not gap <= bound and torch.isfinite(bound):
        raise UnsupportedModelError(
            f"{name} disagrees with autograd on {type(view.model).__name__} by {float(gap):.3g}; "
            f"expected equal scores: look for a custom autograd.Function or in-place writes to "
            f"views, or use backend='auto'"
        )


def unseen(name: str) -> UnsupportedModelError:
    """The error for a parameter whose gradient ghost does not find."""
    return UnsupportedModelError(
        f"parameter {name!r} is used in a way ghost cannot see (a custom autograd.Function or code "
        f"outside PyTorch): use backend='auto' or 'double_backward'"
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
    factors, close, theta = probe(losses), strict(view.precision(losses)), direction.parameters
    truth = _gradient(losses, factors, theta)
    rounding = Rounding(truth, lambda c: _gradient(losses, factors * c, theta))
    place = _different(truth, update(factors), close, rounding)
    if place is not None:
        raise unseen(direction.names[place])
    size = dot(truth, truth).sqrt() * direction.norm_squared().sqrt()
    gap = (dot(truth, direction.values) - (factors * scores).sum()).abs()
    if not gap <= close * size and not gap <= rounding.close() * size:
        raise UnsupportedModelError(
            f"ghost's scores miss autograd's by {float(gap):.3g}: use backend='auto'"
        )


def measured_error(losses: Tensor, scores: Tensor, direction: Direction, probes: int = 8) -> float:
    """The relative error |scores - true| / |true|, by as many backward passes; the graph is left as it is.

    With random signs r, the expectation of (sum_i r_i e_i)^2 is |e|^2, and sum_i r_i true_i is an inner
    product with one plain gradient.
    """
    generator = torch.Generator().manual_seed(20180613)
    error = size = 0.0
    for _ in range(probes):
        draw = torch.randint(2, losses.shape, generator=generator, device="cpu")
        signs = (2 * draw - 1).to(losses)
        found = _gradient(losses, signs, direction.parameters)
        true = float(direction.inner(found, direction.values))
        error += (float((signs.double() * scores.double()).sum()) - true) ** 2
        size += true**2
    return (error / size) ** 0.5 if size > 0 else 0.0


def same_gradient(values: Iterable[Tensor], scalar: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether `values` are the gradient of `scalar` by autograd; the graph is left as it is."""
    truth = _gradient(scalar, None, parameters)
    rounding = Rounding(truth, lambda c: _gradient(scalar * c, None, parameters))
    close = max(strict(p.dtype) for p in parameters)
    return _different(truth, values, close, rounding) is None


def _different(
    truth: Sequence[Tensor], mine: Iterable[Tensor | None], close: float, rounding: Rounding
) -> int | None:
    """The place of the first gradient that differs by more than rounding explains; None if none does."""
    errors = (
        torch.linalg.vector_norm(right if found is None else right - found)
        for right, found in zip(truth, mine, strict=True)
    )
    return first_different(errors, [torch.linalg.vector_norm(x) for x in truth], close, rounding)


def first_different(
    errors: Iterable[Tensor], sizes: Sequence[Tensor], close: float, rounding: Rounding
) -> int | None:
    """As `_different`, from how far two gradients are apart, place by place, and how long the true one is."""
    size = torch.stack([own.double() for own in sizes]).norm() * _NEGLIGIBLE
    for place, (error, own) in enumerate(zip(errors, sizes, strict=True)):
        bound = torch.maximum(own, size.to(own))
        if error <= close * bound:
            continue
        if not error <= rounding.close() * bound and not rounding.explains(place, error):
            return place
    return None


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
    # Detached: PyTorch gives a parameter that is not used zeros that require a gradient.
    return tuple(
        placed_like(p, g.to_dense() if g.is_sparse else g).detach()
        for p, g in zip(parameters, gradient, strict=True)
    )
