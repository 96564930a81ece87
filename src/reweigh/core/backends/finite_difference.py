"""Scores by a difference quotient: the only approximate back-end.

    score_i ~ ( f_i(theta + h v) - f_i(theta) ) / h,        v = grad G

with the same dropout masks and batch statistics in both passes (the random numbers are replayed).
The step is chosen from the parameters' own scale, h = eta * |theta| / |v| with eta the square root
of the machine precision, where the errors of rounding (~ precision / eta) and of the quotient
itself (~ eta) balance.

Cost: one forward without a graph, and a copy of the parameters; of the shards that a process holds,
where `fully_shard` has spread them (processes/fsdp.py). Relative error about 1e-3 in
float32; larger where the loss bends sharply along v. Blind to gradients that are stopped or
replaced on purpose (detach, custom autograd functions): a difference sees through those.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..model import Direction, ModelView, differentiable_losses, evaluate, norm_squared
from ..processes import compute_types, gather_anew, local
from .base import Alignment, Backend, TrainPass


class FiniteDifference(Backend):
    """Scores from the losses at theta and at theta + h v. epsilon: the user's own eta."""

    name = "finite_difference"
    exact = False
    cost = "1 forward, approximate"

    def __init__(self, epsilon: float | None = None) -> None:
        self._epsilon = epsilon

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """Two passes with the same random numbers."""
        view, loss, train = pass_.view, pass_.loss, pass_.batch
        h = step_size(view, direction, self._epsilon)
        # The displaced pass comes first: moving the parameters afterwards would invalidate the graph.
        with (
            view.isolated(own_stream=False),
            displaced(view.model, direction, h),
            torch.no_grad(),
        ):
            ahead = evaluate(view.model, loss, train, which="train")
        with torch.enable_grad():
            losses = differentiable_losses(view.model, loss, train, which="train")
        scores = torch.where(h > 0, (ahead - losses.detach()) / h.clamp(min=1e-38), 0.0)
        return Alignment(losses.detach(), scores.to(losses.dtype), lambda w: (w * losses).sum())


def step_size(view: ModelView, direction: Direction, epsilon: float | None) -> Tensor:
    """h = eta * |theta| / |v|; 0 where v vanishes."""
    kind = view.precision(direction.values[0])
    machine = max(torch.finfo(k).eps for k in {kind, *compute_types(view.model)})
    eta = epsilon or machine**0.5
    theta = [local(p.detach()) for p in direction.parameters]
    squares = torch.stack([norm_squared(theta), norm_squared(direction.values)])
    size, length = direction.total(squares).sqrt()
    # Parameters that are all zero still have a scale: that of one of them being one.
    size = torch.where(size > 0, size, torch.ones_like(size))
    return torch.where(length > 0, eta * size / length.clamp(min=1e-38), torch.zeros_like(length))


@contextmanager
def displaced(model: nn.Module, direction: Direction, h: Tensor) -> Iterator[None]:
    """Move the parameters by h v, and put the very same numbers back on leaving."""
    gather_anew(model)
    places = [local(p.detach()) for p in direction.parameters]
    kept = [place.clone() for place in places]
    with torch.no_grad():
        for place, v in zip(places, direction.values, strict=True):
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
