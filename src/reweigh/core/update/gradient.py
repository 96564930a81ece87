"""The update d = sum_i w_i grad f_i: computed when it is asked for, handed out by `backward()`.

A safeguard may want to see d before it lets it through. Then d is computed once, and `backward()`
hands out that, times the factor. Where nobody looks, the graph is left for `backward()`.

Among processes that share a batch, what is looked at belongs to the joined batch. Who adds up differs:

    LocalUpdate      one process
    AveragedUpdate   `backward()` hands out a process's own part, which the wrapper of the model
                     averages; to look costs one more sum of the size of the aligned parameters
    SummedUpdate     without a wrapper: the mean over the processes is taken here
    ShardedUpdate    fully_shard's own backward has averaged; each process holds its shards
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..model import (
    Direction,
    ModelView,
    leaves,
    local,
    on_host,
    placed_like,
    trainable,
    unhooked,
    with_gradient,
)
from ..processes import Group, flattened, sharded_gradients, trainable_shards, unflattened

Gradient = Sequence[Tensor | None]
ONE = torch.ones(())  # on the host, where it is seen to be one


@dataclass
class LocalUpdate:
    """The gradient of a loss, computed on demand.

    loss:    of this process's share, times the number of processes: its gradient is averaged.
    aligned: the parameters that scores are measured on.
    """

    model: nn.Module
    loss: Tensor
    aligned: Sequence[Tensor]
    group: Group
    _inputs: list[Tensor] = field(default_factory=list)
    _gradient: Gradient | None = None

    def __call__(self) -> list[Tensor | None]:
        """d per aligned parameter."""
        by_id = {id(x): g for x, g in zip(self._leaves(), self._handed_out(), strict=True)}
        return [by_id.get(id(p)) for p in self.aligned]

    def scaled(self, factor: Tensor) -> Tensor:
        """The loss, its value unchanged, its gradient times `factor`."""
        if self._gradient is None:
            # Not looked at: the graph is still there, and so is everything PyTorch can do with it.
            if on_host(factor) and float(factor) == 1:
                return self.loss
            return self.loss.detach() + factor * (self.loss - self.loss.detach())
        return self._replaced(factor)

    def _replaced(self, factor: Tensor) -> Tensor:
        def gradient(scale: Tensor) -> Gradient:
            return [
                None if g is None else g * (scale * factor).to(g.device, g.dtype)
                for g in self._handed_out()
            ]

        return with_gradient(self.loss, self._leaves(), gradient)

    def _leaves(self) -> list[Tensor]:
        """What `backward()` leaves gradients in."""
        if not self._inputs:
            self._inputs = self._find_leaves()
        return self._inputs

    def _handed_out(self) -> Gradient:
        """What `backward()` leaves, leaf by leaf, before the factor."""
        if self._gradient is None:
            self._gradient = self._compute()
        return self._gradient

    def _find_leaves(self) -> list[Tensor]:
        return leaves(self.loss.grad_fn)

    def _compute(self) -> Gradient:
        with unhooked(self._leaves()):  # backward will run the user's hooks, once
            found = torch.autograd.grad(self.loss, self._leaves(), allow_unused=True)
        return [placed_like(x, g) for x, g in zip(self._leaves(), found, strict=True)]


class AveragedUpdate(LocalUpdate):
    """The wrapper of the model averages what `backward()` hands out."""

    def __call__(self) -> list[Tensor | None]:
        """d per aligned parameter: the mean over the processes."""
        return _mean(super().__call__(), self.aligned, self.group)


class SummedUpdate(LocalUpdate):
    """Nobody else averages, so it is done here, for every trainable parameter."""

    def scaled(self, factor: Tensor) -> Tensor:
        """The loss, its value unchanged, its gradient the mean over the processes times `factor`."""
        return self._replaced(factor)

    def _find_leaves(self) -> list[Tensor]:
        # In an order that all processes share, whatever each has used.
        own = list(trainable(self.model).values())
        known = {id(p) for p in own}
        return [*own, *(leaf for leaf in super()._find_leaves() if id(leaf) not in known)]

    def _compute(self) -> Gradient:
        gradient, own = super()._compute(), len(trainable(self.model))
        return [*_mean(gradient[:own], self._leaves()[:own], self.group), *gradient[own:]]


class ShardedUpdate(LocalUpdate):
    """fully_shard's backward averages and leaves shards."""

    def __call__(self) -> list[Tensor | None]:
        """d per aligned parameter: the part that is here."""
        return [None if g is None else local(g) for g in super().__call__()]

    def _find_leaves(self) -> list[Tensor]:
        return trainable_shards(self.model)

    def _compute(self) -> Gradient:
        return sharded_gradients(self.model, self.loss, self._leaves())


def update_of(view: ModelView, loss: Tensor, direction: Direction, group: Group) -> LocalUpdate:
    """The update of a step, as the processes at hand call for."""
    kind = LocalUpdate
    if view.sharded:
        kind = ShardedUpdate
    elif group.size > 1:
        kind = AveragedUpdate if group.averages else SummedUpdate
    # Neither the view nor the direction is kept: what they hold may be large.
    return kind(view.model, loss, direction.parameters, group)


def _mean(gradient: Gradient, parameters: Sequence[Tensor], group: Group) -> list[Tensor | None]:
    """The mean over the processes; None where no process has a gradient."""
    used = torch.tensor([float(g is not None) for g in gradient], device=parameters[0].device)
    filled = [
        torch.zeros_like(p) if g is None else g.to_dense() if g.is_sparse else g
        for g, p in zip(gradient, parameters, strict=True)
    ]
    total = group.summed(flattened(filled, used))()
    total[: -len(used)] /= group.size
    means = unflattened(total, filled)
    return [g if n else None for g, n in zip(means, total[-len(used) :].tolist(), strict=True)]
