"""What normalising needs to know of a batch: sums over its positive scores.

    peak     max_j p_j                       p_j = max(score_j, 0)
    total    sum_j p_j / peak                weight_i = p_i / peak / total
    squares  sum_j (p_j / peak)^2

Dividing by the largest first keeps every sum finite and normal for any scale of the gradients. The
sums of parts of a batch combine, total = sum_r total_r * peak_r / peak, so that processes that share
one normalise over all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sums:
    """Over the whole batch, whoever holds it; `count` examples, `zeros` of them without weight."""

    peak: Tensor
    total: Tensor
    squares: Tensor
    count: Tensor
    zeros: Tensor

    def row(self) -> Tensor:
        """As five numbers, to be sent."""
        fields = (self.peak, self.total, self.squares, self.count, self.zeros)
        return torch.stack([field.detach().double() for field in fields])

    @property
    def largest(self) -> Tensor:
        """The largest weight: that of the largest score."""
        return torch.where(self.peak > 0, 1 / self.total, 0.0)

    @property
    def slope(self) -> Tensor:
        """sum_i weight_i score_i = <grad G, d>."""
        return torch.where(self.peak > 0, self.peak * self.squares / self.total, 0.0)

    @property
    def effective_sample_size(self) -> Tensor:
        """How many examples the weights amount to; 0 if none has any."""
        return torch.where(self.peak > 0, self.total.square() / self.squares, 0.0)

    @property
    def zero_share(self) -> Tensor:
        """The share of the batch that got no weight."""
        return (self.zeros / self.count).float()


def sums_of(scores: Tensor) -> Sums:
    """Of the scores [n] at hand; n may be 0."""
    positive = scores.detach().clamp(min=0)
    peak = torch.cat([positive, positive.new_zeros(1)]).max()
    scaled = positive / (peak + (peak == 0))
    count = torch.tensor(len(scores), device=scores.device)
    return Sums(peak, scaled.sum(), scaled.square().sum(), count, (positive == 0).sum())


def combined(rows: Tensor) -> Sums:
    """Of the parts whose `row`s these are, [parts, 5]."""
    peak = rows[:, 0].max()
    scale = rows[:, 0] / (peak + (peak == 0))
    total, squares = (rows[:, 1] * scale).sum(), (rows[:, 2] * scale.square()).sum()
    return Sums(peak, total, squares, rows[:, 3].sum(), rows[:, 4].sum())
