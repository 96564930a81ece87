"""Large batches in small memory: chunks of a batch, or the micro-batches of a window, one at a time.

Only the chunk at hand has a graph. The weights are normalised over all of them, which seems to need
all scores before the first gradient. The paper's rule does not: with p_i = max(score_i, 0),

    sum_i weight_i grad f_i  =  ( sum_i p_i grad f_i ) / sum_j p_j

so each chunk adds p_i grad f_i while its graph is there, and the sum is divided at the end. Any other
rule needs all scores first: then `backward()` runs each chunk's forward again, with the same random
numbers. So it does where hooks of the user's wait for a backward through the modules. Chunks that got no
weight are left out.

Cost: that of the back-end, and one gradient in memory; by another rule one more forward and backward.
The same weights as of the whole batch for models that do not couple examples; BatchNorm sees each chunk
as a batch of its own, as it does under gradient accumulation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import SettingError
from ..model import (
    Batch,
    Direction,
    Loss,
    ModelView,
    Snapshot,
    batch_size,
    eager,
    evaluate,
    leaves,
    on_host,
    placed_like,
    rows,
    trainable,
    unhooked,
    with_gradient,
)
from ..proof import Proof
from .base import Alignment, Backend, TrainPass
from .empty_share import is_empty, nothing
from .single_loss import SingleLoss


def require_chunk(chunk: int | None) -> int | None:
    """Return `chunk` if it is None or a positive whole number."""
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise SettingError(f"chunk={chunk!r}; expected a positive number of examples, or None")
    return chunk


def chunks(batch: Batch, size: int) -> list[Batch]:
    """The batch, cut into pieces of so many examples; the last may be smaller."""
    n = batch_size(batch)
    return [rows(batch, start, min(start + size, n)) for start in range(0, n, size)]


@dataclass
class PartOfBatch:
    """A chunk or micro-batch, its place among all, and the state that its forward started from."""

    batch: Batch
    place: int
    before: Snapshot


def align_in_parts(
    backend: Backend,
    pass_: TrainPass,
    direction: Direction,
    batches: Sequence[Batch],
    single: SingleLoss | None = None,
) -> Alignment:
    """Align batches one by one, all with one back-end; the alignment is that of all of them.

    single: for batches of one example, instead of the back-end.
    """
    parameters = list(trainable(pass_.view.model).values())
    running = _RunningSum(parameters) if pass_.proportional else None
    parts: list[PartOfBatch] = []
    aligned: list[Alignment] = []  # without the way to their gradients
    used: set[int] = set()  # the ids of the parameters that some part has used
    for batch in batches:
        view = pass_.view.again()
        if is_empty(batch):  # of a process that shares the others' window
            aligned.append(nothing(view.model))
            continue
        if running is None:
            parts.append(PartOfBatch(batch, len(aligned), view.start))
        part = TrainPass(view, pass_.loss, batch)
        alignment = None if single is None else single.align(part, direction)
        alignment = alignment or backend.align(part, direction)
        share = alignment.losses if running is None else running.shares(alignment.scores)
        whole = alignment.weighted(share)  # kept: older PyTorch frees its node with it
        used.update(map(id, leaves(whole.grad_fn)))
        if running is not None and not (on_host(share) and not share.any()):
            running.add(whole)
        aligned.append(replace(alignment, weighted=spent))
        del alignment, whole  # and with them the graph of this part
    losses = joined([one.losses for one in aligned])
    if running is not None:
        gradient: _Gradient = running.gradient
    else:
        precision = autocast(losses.device.type)
        shapes = [one.losses.shape for one in aligned]
        gradient = _Replay(pass_.view.again(), pass_.loss, parts, shapes, precision).gradient

    def weighted(weights: Tensor) -> Tensor:
        def found(scale: Tensor) -> list[Tensor | None]:
            # As in plain training: zero, not None, for what only examples without weight have used.
            return [
                torch.zeros_like(p) if g is None and id(p) in used else g
                for p, g in zip(parameters, gradient(weights * scale, parameters), strict=True)
            ]

        return with_gradient((weights * losses).sum(), parameters, found)

    return Alignment(
        losses,
        joined([one.scores for one in aligned]),
        weighted,
        summed([one.proof for one in aligned if one.proof is not None]),
        [one.losses.shape for one in aligned],
    )


_Gradient = Callable[[Tensor, Sequence[Tensor]], list[Tensor | None]]


def spent(weights: Tensor) -> Tensor:
    """In place of a way to the gradient of one part, whose graph is gone."""
    raise AssertionError("a part has no gradient of its own")


def joined(values: Sequence[Tensor]) -> Tensor:
    """[n] or [n, k] of all parts, one after the other; k may differ, then zeros follow."""
    widths = [value.shape[1] for value in values if value.ndim == 2]
    if widths:
        values = [value.unsqueeze(1) if value.ndim == 1 else value for value in values]
        values = [functional.pad(value, (0, max(widths) - value.shape[1])) for value in values]
    return torch.cat(list(values))


def fitted(values: Tensor, shape: torch.Size) -> Tensor:
    """Of values [n] or [n, k] of all parts, those of a part of this shape, without the zeros that follow."""
    if len(shape) == 2:
        return values[:, : shape[1]]
    return values if values.ndim == 1 else values[:, 0]


class _RunningSum:
    """sum_i p_i grad f_i over the parts so far, p_i = max(score_i, 0), divided by a power of two.

    Scores may be of any size. The power of two follows the largest one, and dividing by it rounds
    nothing.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._total: list[Tensor | None] = [None] * len(parameters)
        self._power: Tensor | None = None
        self._shares: Tensor | None = None  # sum_i p_i / power

    def shares(self, scores: Tensor) -> Tensor:
        """p_i / power of the next part, with a power that holds for it and all before."""
        positive = scores.detach().clamp(min=0)
        ones = positive.new_ones(())
        least = torch.finfo(positive.dtype).tiny
        power = torch.ldexp(ones, torch.frexp(positive.max()).exponent - 1).clamp(min=least)
        if self._power is None or self._shares is None:
            self._power, self._shares = power, ones * 0
        elif not on_host(power) or power > self._power:
            power = torch.maximum(power, self._power)
            shrink, self._power = self._power / power, power
            self._shares = self._shares * shrink
            self._total = [None if g is None else g.mul_(shrink.to(g.dtype)) for g in self._total]
        share = positive / self._power
        self._shares = self._shares + share.sum()
        return share

    def add(self, weighted: Tensor) -> None:
        """Add the gradient of this scalar, sum_i share_i f_i, whose graph is freed."""
        with unhooked(self._parameters):  # backward() runs the user's hooks, once, on the sum
            found = torch.autograd.grad(weighted, list(self._parameters), allow_unused=True)
        for i, (p, value) in enumerate(zip(self._parameters, found, strict=True)):
            if value is not None:
                before, g = self._total[i], placed_like(p, value)
                self._total[i] = g.clone() if before is None else before.add_(g)

    def gradient(self, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """The sum for weights in proportion to p. It can be asked for once."""
        assert self._shares is not None
        least = torch.finfo(weights.dtype).tiny
        factor = weights.sum() / self._shares.to(weights).clamp(min=least)
        return [None if g is None else g.mul_(factor.to(g.dtype)) for g in self._total]


def summed(proofs: Sequence[Proof]) -> Proof | None:
    """The proof of all chunks that were looked at."""
    if not proofs:
        return None
    return Proof(*torch.stack([proof.row() for proof in proofs]).sum(0))


def autocast(device: str) -> torch.autocast:
    """The precision settings of now, to run a forward under them later."""
    return torch.autocast(
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


@dataclass
class _Replay:
    """Each part is run again, once its weights are known. shapes: of the losses of each part."""

    view: ModelView
    loss: Loss
    parts: list[PartOfBatch]
    shapes: list[torch.Size]
    autocast: torch.autocast

    def gradient(self, weights: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """grad sum_i weights_i f_i, one part in memory at a time."""
        total: list[Tensor | None] = [None] * len(parameters)
        shares = weights.split([shape[0] for shape in self.shapes])
        for part in self.parts:
            shape, share = self.shapes[part.place], shares[part.place]
            share = fitted(share, shape)
            # One part is always run, so that parameters in use get a gradient even if it is zero.
            if part is not self.parts[0] and not share.any():
                continue
            with (
                self.view.again().isolated(own_stream=False),
                torch.enable_grad(),
                eager(),
                self.autocast,
            ):
                part.before.restore()
                losses = evaluate(self.view.model, self.loss, part.batch, which="train")
                with unhooked(parameters):  # backward() runs the user's hooks, once, on the sum
                    gradient = torch.autograd.grad(
                        losses, list(parameters), share, allow_unused=True
                    )
            for i, g in enumerate(gradient):
                if g is not None:
                    before = total[i]
                    total[i] = g if before is None else before + g
        return total
