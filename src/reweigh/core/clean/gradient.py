"""The clean side of a step: G = mean loss of the clean batch, and its gradient.

Cost: one forward and one backward on m examples. This is where the paper's look-ahead ends: the
looked-ahead parameters equal the current ones at eps = 0, so the gradient of the clean loss can be
taken here and now, once, whatever the back-end.

Processes that share the batch add up: the gradient, the losses and m in one vector. The sum is on
its way while the training forward runs; who needs the direction first waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import LostProcessError
from ..backends.base import Memory
from ..model.autograd_graph import unhooked
from ..model.device import on_host
from ..model.loss import Batch, Loss, empty, evaluate, leading_sizes, require_gradient
from ..model.parameters import Direction
from ..model.snapshot import isolated
from ..processes import fsdp as sharded
from ..processes.forward_collectives import Listener
from ..processes.group import ALONE, Arriving, Group, flattened, unflattened
from .factoring import factored_gradient


@dataclass(frozen=True)
class CleanSide:
    """losses: [m], detached, of this process. mean_loss(): over all. direction: grad G."""

    losses: Tensor
    mean_loss: Callable[[], Tensor]
    direction: Direction


def clean_gradient(
    model: nn.Module,
    loss: Loss,
    clean: Batch,
    *,
    parameters: dict[str, nn.Parameter],
    group: Group = ALONE,
    listener: Listener | None = None,
    factors: Memory | None = None,
) -> CleanSide:
    """The clean losses and the gradient of their mean; nothing is left behind.

    Parameters that the clean loss does not touch get a gradient of zero. With a memory for `factors`
    parts of the gradient may be left as such (factoring.py).
    """
    names, theta = tuple(parameters), tuple(parameters.values())
    if group.size == 1:
        losses, values = _gradient(model, loss, clean, theta, torch.mean, factors=factors)
        if len(losses) == 0:
            raise empty("clean")
        return CleanSide(losses, losses.mean, Direction(names, theta, values))
    losses, values = _share(model, loss, clean, theta, listener)
    numbers = torch.stack([losses.sum(), losses.new_tensor(len(losses))])
    if sharded.is_sharded(theta):
        # Reduced by the backward already, to shards of the mean over the processes.
        total = _checked(group.summed(flattened([numbers]))())
        scale = group.size / total[-1]
        shards = tuple((v * scale).to(v.dtype) for v in values)
        direction = Direction(names, theta, shards, lambda number: group.summed(number)())
        return CleanSide(losses, lambda: total[0] / total[1], direction)
    flat = flattened(values, numbers)
    arrived = group.summed(flat)

    def mean() -> tuple[Tensor, ...]:
        total = _checked(arrived())
        total[:-1] /= total[-1].clone()
        return unflattened(total, theta)

    direction = Direction(names, theta, Arriving(mean))

    def mean_loss() -> Tensor:
        _ = direction.values[0]  # arrived, and divided
        return flat[-2].to(losses.dtype)

    return CleanSide(losses, mean_loss, direction)


def _gradient(
    model: nn.Module,
    loss: Loss,
    clean: Batch,
    theta: Sequence[nn.Parameter],
    reduction: Callable[[Tensor], Tensor],
    listener: Listener | None = None,
    factors: Memory | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The losses of a clean batch, and the gradient of what `reduction` makes of them."""
    with isolated(model, own_stream=True), torch.enable_grad():
        with listener or nullcontext():
            losses = evaluate(model, loss, clean, which="clean")
        reduced = reduction(require_gradient(losses, which="clean"))
        if sharded.is_sharded(theta):
            found = sharded.gradients(model, reduced, theta)
            values = [
                torch.zeros_like(sharded.local(p.detach())) if g is None else sharded.local(g)
                for p, g in zip(theta, found, strict=True)
            ]
        elif (
            factors is not None
            and (kept := factored_gradient(reduced, len(losses), theta, factors)) is not None
        ):
            return losses.detach(), kept
        else:
            with unhooked(theta):
                values = list(
                    torch.autograd.grad(reduced, theta, materialize_grads=True, allow_unused=True)
                )
    return losses.detach(), tuple(v.to_dense() if v.is_sparse else v for v in values)


def _share(
    model: nn.Module,
    loss: Loss,
    clean: Batch,
    theta: Sequence[nn.Parameter],
    listener: Listener | None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The losses of a share of the clean batch, and the gradient of their sum; a share may be empty."""
    try:
        return _gradient(model, loss, clean, theta, torch.sum, listener)
    except LostProcessError:
        raise
    except Exception:
        # An empty share is run for the sake of exchanges in the forward; not every model can, and one
        # that has none need not. One that had begun to exchange has left the others waiting.
        exchanged = listener is not None and listener.heard
        if leading_sizes(clean) != {0} or sharded.is_sharded(theta) or exchanged:
            raise
    return theta[0].new_zeros(0), tuple(torch.zeros_like(p) for p in theta)


def _checked(total: Tensor) -> Tensor:
    """The sums over the processes, unless there was nothing to sum."""
    if on_host(total) and total[-1] == 0:
        raise empty("clean")
    return total
