"""Scores by a difference quotient: the only approximate back-end.

    score_i ~ ( f_i(theta + h v) - f_i(theta) ) / h,                     v = grad G
    score_i ~ ( f_i(theta + h v) - f_i(theta - h v) ) / 2 h              in bfloat16 or float16

with the same dropout masks and batch statistics in all passes (the random numbers are replayed).
The step is chosen from the parameters' own scale, h = eta * |theta| / |v|, and from the coarsest
precision of the pass: its errors of rounding (~ precision / eta) and of the quotient itself (~ eta, or
eta^2 where it is taken to both sides) must balance.

Cost: one forward without a graph, two in coarse precision, and a copy of the parameters; of the shards
that a process holds, where `fully_shard` has spread them (processes/fsdp.py). Relative error about 1e-3
in float32, 1e-2 under autocast; larger where the loss bends sharply along v. The error on the first
batch is measured and said. Blind to gradients that are stopped or replaced on purpose (detach, custom
autograd functions): a difference sees through those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..model import Direction, ModelView, coarsest, differentiable_losses, evaluate, local
from ..processes import compute_types, gather_anew
from ..proof import measured_error
from .base import Alignment, Backend, TrainPass

# Of eta in coarse precision, against the cube root of that precision. Losses average over many
# roundings, and bend more than their size says: chosen on the networks of test_trust_precision.py.
_SHARE = 0.05


class FiniteDifference(Backend):
    """Scores from the losses at theta and at theta + h v. epsilon: the user's own eta."""

    name = "finite_difference"
    exact = False
    cost = "1 forward, approximate"

    def __init__(self, epsilon: float | None = None) -> None:
        self._epsilon = epsilon
        self._kind: torch.dtype | None = None  # the coarsest precision of the passes so far
        self.error: float | None = None

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """Two or three passes with the same random numbers."""
        view = pass_.view
        _require_not_written(view, direction)
        shared = view.sharded or (dist.is_available() and dist.is_initialized())
        kind = self._kind or _expected(view, direction)
        start = view.start
        while True:
            losses, scores = self._quotient(pass_, direction, kind)
            # Processes must run the same passes, and see different graphs if one has no examples.
            if shared or (found := coarsest(losses)) == kind or self._kind == found:
                break
            self._kind = kind = found
            start.restore()
        if self.error is None and not shared:
            with view.preserved():  # where a checkpoint computes anew
                self.error = measured_error(losses, scores, direction)
        return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())

    def _quotient(
        self, pass_: TrainPass, direction: Direction, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The losses, with their graph, and the scores."""
        coarse = is_coarse(kind)
        h = step_size(direction, self._epsilon or relative_step(kind))
        # The displaced passes come first: moving the parameters afterwards would invalidate the graph.
        ahead = _elsewhere(pass_, direction, h)
        behind = _elsewhere(pass_, direction, -h) if coarse else None
        with torch.enable_grad():
            losses = differentiable_losses(pass_.view.model, pass_.loss, pass_.batch, which="train")
        difference = ahead - losses.detach() if behind is None else (ahead - behind) / 2
        scores = torch.where(h > 0, difference / h.clamp(min=1e-38), 0.0)
        return losses, scores.to(losses.dtype)


def _require_not_written(view: ModelView, direction: Direction) -> None:
    """Raise if the forward writes to parameters: a difference would see that, a gradient does not."""
    written = set() if view.watch is None else view.watch.written
    for name, parameter in zip(direction.names, direction.parameters, strict=True):
        if id(parameter) in written:
            raise UnsupportedModelError(
                f"finite_difference with a forward that writes to its parameter {name!r}, as "
                f"Embedding(max_norm=) does; expected parameters that only an optimizer changes: use "
                f"backend='auto'"
            )


def is_coarse(kind: torch.dtype) -> bool:
    """Whether a difference to one side would be nothing but rounding and curvature."""
    return torch.finfo(kind).eps > torch.finfo(torch.float32).eps


def relative_step(kind: torch.dtype) -> float:
    """eta, for a pass of which this is the coarsest precision."""
    machine = torch.finfo(kind).eps
    return _SHARE * float(machine ** (1 / 3)) if is_coarse(kind) else float(machine**0.5)


def step_size(direction: Direction, eta: float) -> Tensor:
    """h = eta * |theta| / |v|; 0 where v vanishes."""
    theta = [local(p.detach()) for p in direction.parameters]
    values = list(map(local, direction.values))
    squares = torch.stack([direction.part(x, x) for x in (theta, values)])
    size, length = direction.total(squares).sqrt()
    # Parameters that are all zero still have a scale: that of one of them being one.
    size = torch.where(size > 0, size, torch.ones_like(size))
    return torch.where(length > 0, eta * size / length.clamp(min=1e-38), torch.zeros_like(length))


def _expected(view: ModelView, direction: Direction) -> torch.dtype:
    """The coarsest precision that shows before a pass."""
    kinds = {view.precision(direction.values[0]), *compute_types(view.model)}
    return max(kinds, key=lambda kind: torch.finfo(kind).eps)


def _elsewhere(pass_: TrainPass, direction: Direction, h: Tensor) -> Tensor:
    """The losses at theta + h v; everything is as before afterwards."""
    view = pass_.view
    with view.isolated(own_stream=False), displaced(view.model, direction, h), torch.no_grad():
        return evaluate(view.model, pass_.loss, pass_.batch, which="train")


@contextmanager
def displaced(model: nn.Module, direction: Direction, h: Tensor) -> Iterator[None]:
    """Move the parameters by h v, and put the very same numbers back on leaving."""
    gather_anew(model)
    places = [local(p.detach()) for p in direction.parameters]
    kept = [place.clone() for place in places]
    with torch.no_grad():
        for place, v in zip(places, map(local, direction.values), strict=True):
            place.add_(v * h.to(v.dtype))
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        gather_anew(model)
        with torch.no_grad():
            for place, value in zip(places, kept, strict=True):
                place.copy_(value)
        torch.clear_autocast_cache()
