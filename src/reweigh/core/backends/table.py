"""The table of back-ends, and the proof that one of them is right.

The proof is the definition itself, transposed: with random factors r, one plain backward gives
grad sum_i r_i f_i, and

    sum_i r_i score_i  =  < grad sum_i r_i f_i , grad G >

must hold. It costs one backward, works where a double backward does not, and catches what no list
of modules shows: in-batch negatives, custom norms, custom autograd functions whose backward is not
the derivative of their forward. A model can change, so it is repeated when the operations do, and
besides at the 2nd, 4th, 8th, ... use and every 128th. Where a forward couples processes, both sides
are sums over them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError, unknown
from ..model.autograd_graph import unhooked
from ..model.loss import Batch, Loss
from ..model.parameters import Direction, dot
from ..model.snapshot import precision
from . import double_backward, finite_difference, forward_mode
from .base import Alignment, Backend, Memory, Proof
from .ghost import engine as ghost
from .ghost.engine import MOST_PATHS
from .proof import due, probe, tolerance


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    align: Backend
    exact: bool
    adds: str  # to the cost of a plain step, besides the clean pass
    proves_itself: bool = False


BACKENDS: dict[str, Entry] = {
    "ghost": Entry(ghost.align, True, "1 forward", proves_itself=True),
    "forward_mode": Entry(forward_mode.align, True, "2 forwards"),
    "double_backward": Entry(double_backward.align, True, "about 5 forwards"),
    "finite_difference": Entry(finite_difference.align, False, "1 forward, approximate"),
}
"""In the order of their cost, which is the order in which "auto" tries them."""


def require_known(name: str) -> str:
    """Return `name` if it is a back-end or "auto"; else an error with a suggestion."""
    if name != "auto" and name not in BACKENDS:
        raise unknown("back-end", name, ["auto", *BACKENDS])
    return name


def run(
    name: str, model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Align with one back-end; with a proof on the first batch that `memory` sees, and when due."""
    entry = BACKENDS[name]
    alignment = entry.align(model, loss, train, direction, memory)
    if entry.exact and not entry.proves_itself:
        proven = memory.setdefault("proven", {})
        if len(proven) > MOST_PATHS:
            proven.clear()
        path = hash((name, memory.get(forward_mode.PATH)))
        proven[path] = proven.get(path, 0) + 1
        if due(proven[path]):
            return replace(alignment, proof=prove(alignment, direction))
    return alignment


def prove(alignment: Alignment, direction: Direction) -> Proof:
    """Compare the scores with a plain backward along random factors."""
    factors = probe(alignment.losses)
    with unhooked(direction.parameters):
        truth = torch.autograd.grad(
            alignment.weighted(factors), direction.parameters, retain_graph=True,
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
    truth = tuple(g.to_dense() if g.is_sparse else g for g in truth)
    gap = (factors * alignment.scores).sum() - dot(truth, direction.values)
    return Proof(gap, dot(truth, truth))


def require_proven(
    name: str, model: nn.Module, proof: Proof, losses: Tensor, direction: Direction
) -> None:
    """Raise unless the scores agree with a plain backward."""
    close = tolerance(precision(model, losses))
    gap, bound = proof.gap.abs(), close * proof.size.sqrt() * direction.norm_squared().sqrt()
    # Not `gap > bound`: a NaN must not pass here, unless there is nothing to compare with.
    if not gap <= bound and torch.isfinite(bound):
        raise UnsupportedModelError(
            f"{name} disagrees with autograd on {type(model).__name__} by {float(gap):.3g}; "
            f"expected equal scores: look for a custom autograd.Function or in-place writes to "
            f"views, or use backend='auto'"
        )
