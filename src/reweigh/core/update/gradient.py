"""The update d = sum_i w_i grad f_i: known when it is asked for, handed out by `backward()`.

A safeguard may want to see d before it lets it through. It is then computed once and given to
`backward()` as it is, times the factor; where nobody looks, the graph is left for `backward()`.

Among processes that share a batch, what is looked at is the joined batch's: one more sum of the
size of the aligned parameters. `backward()` hands out a process's own part, for the wrapper of the
model to average; without a wrapper, the sum over the processes. Shards come averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.autograd_graph import leaves, unhooked, with_gradient
from ..model.device import on_host
from ..model.parameters import Direction, trainable
from ..processes import fsdp as sharded
from ..processes.group import Group, flattened, unflattened

Gradient = Sequence[Tensor | None]
ONE = torch.ones(())  # on the host, where it is seen to be one


class Update:
    """The gradient of a loss, computed on demand.

    loss: of this process's share, times the number of processes: its gradient is averaged.
    """

    def __init__(self, loss: Tensor, model: nn.Module, direction: Direction, group: Group) -> None:
        self._loss, self._model, self._group = loss, model, group
        self._aligned = direction.parameters  # not the direction: what it holds may be large
        self._inputs: list[Tensor] = []
        self._gradient: Gradient | None = None
        self._sums_itself = group.size > 1 and not group.averages

    @property
    def _sharded(self) -> bool:
        return sharded.is_sharded(self._aligned)

    def __call__(self) -> list[Tensor | None]:
        """d per aligned parameter; of shards, the part that is here."""
        gradient = self._handed_out()
        found = {id(x): g for x, g in zip(self._inputs, gradient, strict=True)}
        aligned = [found.get(id(p)) for p in self._aligned]
        if self._sharded:
            return [None if g is None else sharded.local(g) for g in aligned]
        if self._group.size == 1 or self._sums_itself:
            return aligned
        return list(_mean(aligned, self._aligned, self._group))

    def scaled(self, factor: Tensor) -> Tensor:
        """The loss, its value unchanged, its gradient times `factor`."""
        if self._gradient is None and not self._sums_itself:
            # Not looked at: the graph is still there, and so is everything PyTorch can do with it.
            return self._loss if _is_one(factor) else _scale(self._loss, factor)
        self._inputs = self._inputs or self._leaves()

        def gradient(scale: Tensor) -> Gradient:
            handed = self._handed_out()
            return [
                None if g is None else g * (scale * factor).to(g.device, g.dtype) for g in handed
            ]

        return with_gradient(self._loss, self._inputs, gradient)

    def _leaves(self) -> list[Tensor]:
        """What a backward leaves gradients in."""
        found = leaves(self._loss.grad_fn)
        if self._sharded:
            return sharded.parameters(self._model)
        if self._sums_itself:  # in an order that all processes share, whatever each has used
            own = list(trainable(self._model).values())
            known = {id(p) for p in own}
            return [*own, *(leaf for leaf in found if id(leaf) not in known)]
        return found

    def _handed_out(self) -> Gradient:
        """What `backward()` leaves, input by input, before the factor."""
        if self._gradient is None:
            self._inputs = self._inputs or self._leaves()
            if self._sharded:
                self._gradient = sharded.gradients(self._model, self._loss, self._inputs)
            else:
                with unhooked(self._inputs):  # backward will run the user's hooks, once
                    self._gradient = torch.autograd.grad(
                        self._loss, self._inputs, allow_unused=True
                    )
            if self._sums_itself:
                own = len(trainable(self._model))
                shared, rest = self._gradient[:own], self._gradient[own:]
                self._gradient = [*_mean(shared, self._inputs[:own], self._group), *rest]
        return self._gradient


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


def _is_one(factor: Tensor) -> bool:
    return on_host(factor) and float(factor) == 1


def _scale(loss: Tensor, factor: Tensor) -> Tensor:
    return loss.detach() + factor * (loss - loss.detach())
