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
from ..model import Direction, ModelView, dot
from ..processes import Unit, local, sharded_gradients, units_of
from ..proof import Proof, first_different, probe, unseen
from ..rounding import UNIFORM, Rounding, strict


def agreed(direction: Direction, flags: Sequence[bool]) -> list[bool]:
    """For each flag, whether any of the processes that hold shards of `direction` has raised it."""
    mine = torch.tensor(flags, dtype=torch.float64, device=direction.values[0].device)
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
    # <grad sum_i r_i f_i, v> = N <truth, v>, and as many processes as there are copies hold the same.
    gap = (factors * scores).sum() - unit.size * dot(truth, direction.values)
    error = [b.double() / UNIFORM - a.double() for a, b in zip(truth, again, strict=True)]
    scale = unit.size * unit.processes
    return Proof(gap.double(), scale * dot(truth, truth).double(), scale * dot(error, error))


def require_sharded_update(
    view: ModelView, losses: Tensor, scores: Tensor, direction: Direction,
    update: Callable[[Tensor], Sequence[Tensor | None]], unit: Unit,
) -> None:  # fmt: skip
    """As `require_update`. update: weights -> shards of the mean of what ghost assembles."""
    factors, close = probe(losses), strict(view.precision(losses))
    truth = shard_gradient(view, (factors * losses).sum(), direction)
    again = shard_gradient(view, (factors * UNIFORM * losses).sum(), direction)
    mine = update(factors)
    squares = torch.stack(
        [
            torch.stack([_square(right if found is None else right - local(found)),
                         _square(right), _square(scaled / UNIFORM - right)])
            for right, found, scaled in zip(truth, mine, again, strict=True)
        ]
    )  # fmt: skip
    # A score belongs to one process, a shard to as many as there are copies of it.
    numbers = torch.stack(
        [dot(truth, direction.values).double(), (factors * scores).sum().double() / unit.size]
    )
    total = direction.total(torch.cat([squares.flatten(), numbers]))
    errors, sizes, rounded = total[:-2].view(-1, 3).sqrt().unbind(1)
    rounding = Rounding.measured(list(rounded), list(sizes))
    place = first_different(list(errors), list(sizes), close, rounding)
    if place is not None:
        raise unseen(direction.names[place])
    size = torch.linalg.vector_norm(sizes) * direction.norm_squared().sqrt()
    gap = (total[-2] - total[-1]).abs()
    if not gap <= close * size and not gap <= rounding.close() * size:
        raise UnsupportedModelError(
            f"ghost's scores miss autograd's by {float(gap):.3g}: use backend='auto'"
        )


def _square(value: Tensor) -> Tensor:
    return value.double().square().sum()
