"""The clean side of a step: G = mean loss of the clean batch, and its gradient.

Cost: one forward and one backward on m examples. This is where the paper's look-ahead ends: the
looked-ahead parameters equal the current ones at eps = 0, so the gradient of the clean loss can be
taken here and now, once, whatever the back-end.

Processes that share the batch add up the gradient, the losses and m in one vector. That sum is on
its way while the training forward runs; who needs the direction first waits for it.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...errors import LostProcessError
from ..model import (
    Batch,
    Direction,
    Loss,
    MicroBatches,
    ModelView,
    empty,
    evaluate,
    leading_sizes,
    leaves,
    local,
    on_host,
    placed_like,
    require_gradient,
    unhooked,
)
from ..processes import (
    ALONE,
    Arriving,
    Group,
    Holders,
    Listener,
    copies_of,
    flattened,
    sharded_gradients,
    unflattened,
)
from .sharded import ShardedGradient

# reduced loss, m, parameters -> its gradient in a cheaper form, or None where there is none
Cheaper = Callable[[Tensor, int, Sequence[nn.Parameter]], Sequence[Tensor] | None]


@dataclass(frozen=True)
class CleanSide:
    """losses: [m], detached, of this process. mean_loss(): over all. direction: grad G."""

    losses: Tensor
    mean_loss: Callable[[], Tensor]
    direction: Direction


def clean_gradient(
    view: ModelView,
    loss: Loss,
    clean: Batch,
    parameters: dict[str, nn.Parameter],
    *,
    cheaper: Cheaper | None = None,
) -> CleanSide:
    """The clean losses and the gradient of their mean; nothing is left behind.

    Parameters that the clean loss does not touch get a gradient of zero. cheaper: tried first.
    """
    theta = tuple(parameters.values())
    losses, values = _gradient(view, loss, clean, theta, torch.mean, cheaper=cheaper)
    if len(losses) == 0:
        raise empty("clean")
    direction = Direction(tuple(parameters), theta, values)
    return CleanSide(losses, losses.mean, _held(view, direction, ALONE))


def shared_clean_gradient(
    view: ModelView,
    loss: Loss,
    clean: Batch,
    parameters: dict[str, nn.Parameter],
    group: Group,
    *,
    listener: Listener | None = None,
    cheaper: Cheaper | None = None,
) -> CleanSide:
    """As `clean_gradient`, over the clean batches of all processes. listener: hears the forward."""
    losses, values = _share(view, loss, clean, tuple(parameters.values()), listener, cheaper)
    numbers = torch.stack([losses.sum(), losses.new_tensor(len(losses))])
    merge = _of_shards if view.sharded else _of_sums
    side = merge(parameters, losses, values, numbers, group)
    return replace(side, direction=_held(view, side.direction, group))


def _held(view: ModelView, direction: Direction, group: Group) -> Direction:
    """The direction, with sums over the processes among which tensor parallelism has cut the model."""
    if not view.split:
        return direction
    holders = Holders.of(view.model, group)
    shares = holders.shares(direction.parameters)
    return replace(direction, total=holders.total, shares=shares)


def _of_shards(
    parameters: dict[str, nn.Parameter], losses: Tensor, values: Sequence[Tensor], numbers: Tensor,
    group: Group,
) -> CleanSide:  # fmt: skip
    """The backward has reduced the gradient already, to shards of its mean over the processes."""
    total = _checked(group.summed(flattened([numbers]))())
    scale = group.size / total[-1]
    shards = (
        values.scaled(scale)
        if isinstance(values, ShardedGradient)
        else tuple((v * scale).to(v.dtype) for v in values)
    )
    theta = tuple(parameters.values())
    copies = copies_of(theta[0])  # of each shard: more than one on a mesh of two dimensions
    direction = Direction(tuple(parameters), theta, shards, lambda x: group.summed(x)() / copies)
    return CleanSide(losses, lambda: total[0] / total[1], direction)


def _of_sums(
    parameters: dict[str, nn.Parameter], losses: Tensor, values: Sequence[Tensor], numbers: Tensor,
    group: Group,
) -> CleanSide:  # fmt: skip
    """Gradient, loss and m are summed in one vector, in place: [values, loss sum, m]."""
    theta, total = tuple(parameters.values()), flattened(values, numbers)
    arrived = group.summed(total)

    def mean() -> tuple[Tensor, ...]:
        _checked(arrived())
        total[:-1] /= total[-1].clone()
        return unflattened(total, theta)

    direction = Direction(tuple(parameters), theta, Arriving(mean))

    def mean_loss() -> Tensor:
        _ = direction.values[0]  # waits until the sums have arrived and are divided by m
        return total[-2].to(losses.dtype)

    return CleanSide(losses, mean_loss, direction)


def _gradient(
    view: ModelView,
    loss: Loss,
    clean: Batch,
    theta: Sequence[nn.Parameter],
    reduction: Callable[[Tensor], Tensor],
    *,
    listener: Listener | None = None,
    cheaper: Cheaper | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The losses of a clean batch, and the gradient of what `reduction` makes of them."""
    with view.isolated(own_stream=True), torch.enable_grad():
        if isinstance(clean, MicroBatches):
            return _summed_gradient(view, loss, clean, theta, reduction, listener)
        with listener or nullcontext():
            losses = evaluate(view.model, loss, clean, which="clean")
        reduced = reduction(require_gradient(losses, which="clean"))
        values = None if cheaper is None else cheaper(reduced, len(losses), theta)
        if values is None:
            values = _shards(view, reduced, theta) if view.sharded else _dense(reduced, theta)
    return losses.detach(), values


def _summed_gradient(
    view: ModelView, loss: Loss, clean: MicroBatches, theta: Sequence[nn.Parameter],
    reduction: Callable[[Tensor], Tensor], listener: Listener | None,
) -> tuple[Tensor, Sequence[Tensor]]:  # fmt: skip
    """As `_gradient`, of clean micro-batches one after the other. Only one at a time has a graph."""
    found: list[Tensor] = []
    total: list[Tensor] = []
    for part in clean:
        with listener or nullcontext():
            losses = evaluate(view.model, loss, part, which="clean")
        reduced = require_gradient(losses, which="clean").sum()
        values = _shards(view, reduced, theta) if view.sharded else _dense(reduced, theta)
        total = [a + b for a, b in zip(total, values, strict=True)] if total else list(values)
        found.append(losses.detach())
        del losses, reduced  # and with them the graph
    joined = torch.cat(found)
    if reduction is torch.mean:
        total = [value / max(1, len(joined)) for value in total]
    return joined, tuple(total)


def _dense(scalar: Tensor, theta: Sequence[nn.Parameter]) -> tuple[Tensor, ...]:
    """The gradient of a scalar, without the hooks that users have registered on parameters."""
    leaves(scalar.grad_fn)  # refused where the graph hides parameters
    with unhooked(theta):
        values = torch.autograd.grad(scalar, theta, allow_unused=True)
    # Not by materialize_grads: the zeros of PyTorch 2.9 and older require gradients themselves.
    return tuple(
        torch.zeros_like(p) if v is None else v.to_dense() if v.is_sparse else placed_like(p, v)
        for p, v in zip(theta, values, strict=True)
    )


def _shards(view: ModelView, scalar: Tensor, theta: Sequence[nn.Parameter]) -> tuple[Tensor, ...]:
    """This process's shards of the gradient of a scalar."""
    values = [
        torch.zeros_like(local(p.detach())) if g is None else local(g)
        for p, g in zip(theta, sharded_gradients(view.model, scalar, theta), strict=True)
    ]
    return tuple(v.to_dense() if v.is_sparse else v for v in values)


def _share(
    view: ModelView, loss: Loss, clean: Batch, theta: Sequence[nn.Parameter],
    listener: Listener | None, cheaper: Cheaper | None,
) -> tuple[Tensor, Sequence[Tensor]]:  # fmt: skip
    """The losses of a share of the clean batch, and the gradient of their sum; it may be empty."""
    try:
        return _gradient(view, loss, clean, theta, torch.sum, listener=listener, cheaper=cheaper)
    except LostProcessError:
        raise
    except Exception:
        # An empty share is run for the sake of exchanges in the forward. Not every model can, and
        # one without exchanges need not. One that had begun to exchange has left others waiting.
        exchanged = listener is not None and listener.heard
        if leading_sizes(clean) != {0} or view.sharded or exchanged:
            raise
    return theta[0].new_zeros(0), tuple(torch.zeros_like(p) for p in theta)


def _checked(total: Tensor) -> Tensor:
    """The sums over the processes, unless there was nothing to sum."""
    if on_host(total) and total[-1] == 0:
        raise empty("clean")
    return total
