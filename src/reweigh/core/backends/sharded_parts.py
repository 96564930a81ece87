"""Chunks and windows where `fully_shard` has spread the parameters: as chunked.py, on shards.

    sum_i weight_i grad f_i  =  ( sum_i p_i grad f_i ) / sum_j p_j            p_i = max(score_i, 0)

Every part leaves sum_i p_i grad f_i in shards, added up over all processes as every backward of fully_shard
does. So what it is divided by is that of all processes, too, and so is the power of two that keeps it in range.

Every pass is an exchange: all processes run as many parts, and none is left out because it got no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from ..model import Batch, Direction, eager, evaluate, local, with_gradient
from ..processes import as_shard_of, gather_anew, sharded_gradients, trainable_shards
from .base import Alignment, Backend, TrainPass
from .chunked import PartOfBatch, autocast, fitted, joined, spent, summed
from .empty_share import is_empty, without_statistics
from .sharded_proof import agreed


def align_parts_in_shards(
    backend: Backend, pass_: TrainPass, direction: Direction, batches: Sequence[Batch]
) -> Alignment:
    """Align batches one by one, all with one back-end; the alignment is that of all of them."""
    model = pass_.view.model
    shards = trainable_shards(model)
    # Hooks that call for another pass may be on one process only: all do as that one.
    again_anywhere = agreed(direction, [not pass_.proportional])[0]
    running = None if again_anywhere else _RunningSum(shards, direction)
    parts: list[PartOfBatch] = []
    aligned: list[Alignment] = []  # without the way to their gradients
    for batch in batches:
        gather_anew(model)  # a part whose gradient nobody has asked for has left parameters whole
        view = pass_.view.again()
        parts.append(PartOfBatch(batch, len(aligned), view.start))
        with without_statistics(view) if is_empty(batch) else nullcontext():
            alignment = backend.align(TrainPass(view, pass_.loss, batch), direction)
        if running is not None:
            share = running.shares(alignment.scores)
            running.add(sharded_gradients(model, alignment.weighted(share), shards))
        aligned.append(replace(alignment, weighted=spent))
        del alignment  # and with it the graph of this part
    gather_anew(model)
    losses = joined([one.losses for one in aligned])
    shapes = [one.losses.shape for one in aligned]
    precision = autocast(losses.device.type)

    def again(weights: Tensor) -> list[Tensor | None]:
        """grad sum_i weights_i f_i: each part is run again, one in memory at a time."""
        total = _Total(len(shards))
        for part, share in zip(parts, weights.split([s[0] for s in shapes]), strict=True):
            gather_anew(model)
            view = pass_.view.again()
            with view.isolated(own_stream=False), torch.enable_grad(), eager(), precision:
                part.before.restore()
                found = evaluate(model, pass_.loss, part.batch, which="train")
                weighted = (found * fitted(share, shapes[part.place])).sum()
                total.add(sharded_gradients(model, weighted, shards))
        return total.values

    gradient = again if running is None else running.gradient

    def weighted(weights: Tensor) -> Tensor:
        def found(scale: Tensor) -> list[Tensor | None]:
            return [
                None if value is None else as_shard_of(p, value)
                for p, value in zip(shards, gradient(weights * scale), strict=True)
            ]

        return with_gradient((weights * losses).sum(), shards, found)

    if running is not None:
        parts.clear()
    scores = joined([one.scores for one in aligned])
    proof = summed([one.proof for one in aligned if one.proof is not None])
    return Alignment(losses, scores, weighted, proof, shapes)


class _Total:
    """A sum of gradients in shards; None where no part has one."""

    def __init__(self, count: int) -> None:
        self.values: list[Tensor | None] = [None] * count

    def add(self, found: Sequence[Tensor | None]) -> None:
        for i, g in enumerate(found):
            if g is not None:
                before, more = self.values[i], local(g)
                self.values[i] = more.clone() if before is None else before.add_(more)

    def times(self, factor: Tensor) -> list[Tensor | None]:
        self.values = [None if g is None else g.mul_(factor.to(g.dtype)) for g in self.values]
        return self.values


class _RunningSum:
    """sum_i p_i grad f_i over the parts so far, as a mean over the processes, divided by a power of two."""

    def __init__(self, shards: Sequence[Tensor], direction: Direction) -> None:
        self._total, self._direction = _Total(len(shards)), direction
        self._power = self._sum = torch.zeros((), dtype=torch.float64)

    def shares(self, scores: Tensor) -> Tensor:
        """p_i / power of the next part, with a power that holds for it and all before, everywhere."""
        positive = scores.detach().clamp(min=0)
        largest = positive.amax() if positive.numel() else positive.new_zeros(())
        bound = self._direction.total(largest.double().reshape(1))[0]
        power = torch.ldexp(torch.ones_like(bound), torch.frexp(bound).exponent - 1)
        least = torch.finfo(positive.dtype).tiny
        power = torch.maximum(power.clamp(min=least), self._power.to(power))
        shrink = self._power.to(power) / power
        self._total.times(shrink)
        self._sum = self._sum.to(power) * shrink + (positive.double() / power).sum()
        self._power = power
        return (positive.double() / power).to(positive.dtype)

    def add(self, found: Sequence[Tensor | None]) -> None:
        """Add the gradient of this part: of sum_i share_i f_i."""
        self._total.add(found)

    def gradient(self, weights: Tensor) -> list[Tensor | None]:
        """The sum for weights in proportion to p, on all processes. It can be asked for once."""
        both = torch.stack([weights.sum().double(), self._sum])
        mine, shares = self._direction.total(both)
        return self._total.times(mine / shares.clamp(min=torch.finfo(torch.float64).tiny))
