"""One reweighed step: the loss to call backward on, and how the batch, or the window, went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .backends import fitted
from .rule import BatchSummary, effective_sample_size


@dataclass(frozen=True)
class Step:
    """The outcome of weighing one train batch against one clean batch.

    loss:       a scalar, sum_i weights_i * losses_i; `backward()` leaves its gradient, times
                `factor`, in `.grad`.
    weights:    [n], or [n, k] where the loss has k parts an example; non-negative, summing to one, or all zero when no example helps.
    scores:     as weights, signed: the inner product of each example's gradient with the clean gradient.
    losses:     as weights, detached, of the forward pass that the update trains on.
    clean_loss: the mean loss of the clean batch.
    factor:     in [0, 1]: how much of the step the safeguard lets through; 1 without one.
    joined:     the joined batch in numbers, where processes share one; else None.

    Where processes share a batch, the weights sum to one over all of them, and weights, scores and
    losses are those of a process's own share. `clean_loss`, `factor`, `effective_sample_size` and
    `zero_share` are of the joined batch, the same everywhere. `loss` is the share's part of the sum
    times the number of processes, so that its mean over them, which DistributedDataParallel and
    fully_shard take of the gradients, is the loss of the joined batch; without such a wrapper
    `backward()` takes that mean itself. Either way `.grad` is the joined batch's, everywhere.
    """

    loss: Tensor
    weights: Tensor
    scores: Tensor
    losses: Tensor
    clean_loss: Tensor
    factor: Tensor
    joined: BatchSummary | None = None

    @property
    def shared_by(self) -> int:
        """The number of examples that the weights are shared out among."""
        return len(self.weights) if self.joined is None else self.joined.count

    @property
    def effective_sample_size(self) -> Tensor:
        """How many losses the weights amount to: all when equal, 1 when one has all, 0 when none."""
        if self.joined is not None:
            return self.joined.effective_sample_size
        return effective_sample_size(self.weights.flatten())

    @property
    def zero_share(self) -> Tensor:
        """The share of the losses that got no weight."""
        if self.joined is not None:
            return self.joined.zero_share
        return (self.weights == 0).float().mean()

    def __repr__(self) -> str:
        parts = self.weights.shape[1] if self.weights.ndim == 2 else 1
        n, ess = self.shared_by * parts, float(self.effective_sample_size)
        return (
            f"Step(loss={float(self.loss.detach()):.4g}, clean_loss={float(self.clean_loss):.4g}, "
            f"effective_sample_size={ess:.1f} of {n}, zero_share={float(self.zero_share):.2f}, "
            f"factor={float(self.factor):.2g})"
        )


@dataclass(frozen=True)
class Window:
    """The outcome of weighing the micro-batches between two optimizer steps as one batch.

    loss:    as `Step.loss`, of all micro-batches: one `backward()` leaves the gradient of the joined
             batch. Do not divide it by the number of micro-batches.
    weights, scores, losses: a list with one tensor per micro-batch. The weights sum to one over all.
    step:    the same as a `Step` of the joined batch.
    """

    step: Step
    weights: list[Tensor]
    scores: list[Tensor]
    losses: list[Tensor]

    @classmethod
    def of(cls, step: Step, shapes: Sequence[torch.Size]) -> Window:
        """The step on the joined batch, cut into micro-batches whose losses had these shapes."""
        cut = (_cut(values, shapes) for values in (step.weights, step.scores, step.losses))
        return cls(step, *cut)

    @property
    def loss(self) -> Tensor:
        """The scalar sum_i weights_i * losses_i over the window."""
        return self.step.loss

    def backward(self) -> None:
        """Leave the gradient of the joined batch in `.grad`, as `loss.backward()` does."""
        self.step.loss.backward()

    @property
    def clean_loss(self) -> Tensor:
        """The mean loss of the clean batch."""
        return self.step.clean_loss

    @property
    def factor(self) -> Tensor:
        """How much of the step the safeguard lets through."""
        return self.step.factor

    @property
    def effective_sample_size(self) -> Tensor:
        """How many losses of the window the weights amount to."""
        return self.step.effective_sample_size

    @property
    def zero_share(self) -> Tensor:
        """The share of the losses of the window that got no weight."""
        return self.step.zero_share

    def __repr__(self) -> str:
        return f"Window({len(self.weights)} micro-batches, {self.step!r})"


def _cut(values: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    pieces = values.split([shape[0] for shape in shapes])
    return [fitted(piece, shape) for piece, shape in zip(pieces, shapes, strict=True)]
