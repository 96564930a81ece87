"""Proofs where `fully_shard` has spread the parameters: the same comparisons, shard by shard.

A plain backward leaves the mean over the N processes of grad sum_i r_i f_i, of which each holds its rows:
no process ever holds all of it. What is compared are sums over the shards, the same on every
process, so that all come to the same verdict. Every backward is an exchange: all processes run as many, and
so the rounding is always measured, not only where a strict comparison has failed.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...errors import UnsupportedModelError
from ..model import Direction, ModelView, dot, local
from ..processes import ShardedUnit, sharded_gradients, units_of
from ..proof import Proof, first_different, probe, unseen
from ..rounding import UNIFORM, Rounding, strict


def agreed(direction: Direction, flags: Sequence[bool]) -> list[bool]:
    """For each flag, whether any of the processes that hold shards of `direction` has raised it."""
    mine = torch.tensor(flags, dtype=torch.float64, device=direction.parameters[0].device)
    return [flag > 0 for flag in direction.total(mine).tolist()]


def shard_gradient(view: ModelView, scalar: Tensor, direction: Direction) -> list[Tensor]:
    """This process's shards of the gradient of a scalar, as a mean over the processes; the graph stays."""
    found = sharded_gradients(view.model, scalar, direction.parameters, keep=True)
    return [
        torch.zeros_like(local(p.detach())) if g is None else local(g)
        for p, g in zip(direction.parameters, found, strict=True)
    ]


def sharded_score_proof(
    view: ModelView, weighted: Callable[[Tensor], Tensor], losses: Tensor, scores: Tensor,
    direction: Direction,
) -> Proof:  # fmt: skip
    """As `score_proof`. The three numbers are a process's parts of sums over all processes."""
    factors, unit = probe(losses), units_of(view.model, direction.parameters)[0]
    truth, again = (shard_gradient(view, weighted(factors * c), direction) for c in (1.0, UNIFORM))
    rounded = [b / UNIFORM - a for a, b in zip(truth, again, strict=True)]
    pairs = ((truth, direction.values), (truth, truth), (rounded, rounded))
    parts = torch.stack([direction.part(a, b).double() for a, b in pairs])
    right, size, rounding = direction.total(parts)
    # Of the N processes that share the batch: <grad sum_i r_i f_i, v> = N <truth, v>, which all know.
    gap = (factors * scores).sum().double() - right
    return Proof(gap, unit.processes * size, unit.processes * rounding)


def require_sharded_update(
    view: ModelView, losses: Tensor, scores: Tensor, direction: Direction,
    update: Callable[[Tensor], Sequence[Tensor | None]], unit: ShardedUnit,
) -> None:  # fmt: skip
    """As `require_update`. update: weights -> shards of the mean of what ghost assembles."""
    factors, close = probe(losses), strict(view.precision(losses))
    truth, again = _twice(view, (factors * losses).sum(), direction)
    place, sizes, rounding = _compared(truth, again, update(factors), direction, close)
    if place is not None:
        raise unseen(direction.names[place])
    # A score belongs to one process, a shard to as many as there are copies of it.
    numbers = [dot(truth, direction.values).double(), (factors * scores).sum().double() / unit.size]
    right, mine = direction.total(torch.stack(numbers))
    size = torch.linalg.vector_norm(sizes) * direction.norm_squared().sqrt()
    gap = (right - mine).abs()
    if not gap <= close * size and not gap <= rounding.close() * size:
        raise UnsupportedModelError(
            f"ghost's scores miss autograd's by {float(gap):.3g}: use backend='auto'"
        )


def same_shards(
    view: ModelView, scalar: Tensor, mine: Sequence[Tensor], direction: Direction
) -> bool:
    """Whether shards are the gradient of `scalar` by autograd; the graph is left as it is."""
    truth, again = _twice(view, scalar, direction)
    close = max(strict(p.dtype) for p in direction.parameters)
    return _compared(truth, again, mine, direction, close)[0] is None


def _twice(view: ModelView, scalar: Tensor, direction: Direction) -> tuple[list[Tensor], ...]:
    """The gradient of a scalar, and that of `UNIFORM` times it, which is rounded anew."""
    return tuple(shard_gradient(view, scalar * c, direction) for c in (1.0, UNIFORM))


def _compared(
    truth: Sequence[Tensor], again: Sequence[Tensor], mine: Sequence[Tensor | None],
    direction: Direction, close: float,
) -> tuple[int | None, Tensor, Rounding]:  # fmt: skip
    """The first place that differs on all processes together; the lengths of the gradients; their rounding."""
    squares = [
        torch.stack([_square(right if found is None else right - local(found)), _square(right),
                     _square(scaled / UNIFORM - right)])
        for right, found, scaled in zip(truth, mine, again, strict=True)
    ]  # fmt: skip
    flat = torch.cat(squares)
    errors, sizes, rounded = direction.total(flat).view(-1, 3).sqrt().unbind(1)
    rounding = Rounding.measured(list(rounded), list(sizes))
    return first_different(list(errors), list(sizes), close, rounding), sizes, rounding


def _square(value: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(value, dtype=torch.float64)
    return length.square()
