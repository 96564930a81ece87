"""From signed scores to weights: the paper's rule.

    weight_i = max(score_i, 0) / sum_j max(score_j, 0),      all zero when no score is positive

The learning rate of the look-ahead step and that of the meta step both multiply every score, so
they cancel in the quotient: there is nothing to tune.

Processes that share a batch normalise over all of it. What they need to know of the others' scores
is a few sums, with p_j = max(score_j, 0):

    peak     max_j p_j
    total    sum_j p_j / peak                weight_i = p_i / peak / total
    squares  sum_j (p_j / peak)^2

Dividing by the largest first keeps every sum finite and normal for any scale of the gradients. The
sums of parts of a batch combine: total = sum_r total_r * peak_r / peak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SettingError

# scores [n] of the batch -> weights [n], none negative; what `Reweighter(rule=...)` takes
Rule = Callable[[Tensor], Tensor]


def weights_from_scores(scores: Tensor, sums: ScoreSums | None = None) -> Tensor:
    """Rectify and normalise `scores` [n] or [n, k]: non-negative, summing to one, or all zero.

    sums: of a joined batch of which these scores are a part. The weights then sum to one over that.

    >>> weights_from_scores(torch.tensor([3.0, -1.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    positive = scores.detach().clamp(min=0)
    if sums is not None:
        positive = positive / (sums.peak + (sums.peak == 0))
        return positive / (sums.total + (sums.total == 0))
    least = torch.finfo(positive.dtype).tiny  # in place of a zero
    positive = positive / positive.max().clamp(min=least)
    return positive / positive.sum().clamp(min=least)


def require_rule(rule: Rule | None) -> Rule | None:
    """Return `rule` if it can be called; None for the paper's."""
    if rule is not None and not callable(rule):
        raise SettingError(
            f"rule={rule!r}; expected a function from scores [n] to weights [n], or None for the "
            f"paper's rule"
        )
    return None if rule is weights_from_scores else rule


def weights_by(rule: Rule, scores: Tensor) -> Tensor:
    """The weights that a rule of the user's gives to `scores` [n], checked."""
    weights = rule(scores.detach())
    if not isinstance(weights, Tensor) or weights.shape != scores.shape:
        what = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise SettingError(
            f"rule returned {what} for scores of shape {tuple(scores.shape)}; expected a tensor with "
            f"one weight per score"
        )
    if weights.is_cpu and not bool((weights >= 0).all()):
        raise SettingError(
            f"rule returned a weight of {float(weights.min()):.3g}; expected none below zero or NaN: "
            f"such an example would be unlearned"
        )
    return weights.detach().to(scores.dtype)


def effective_sample_size(weights: Tensor) -> Tensor:
    """How many examples the weights [..., n] amount to: (sum_i weight_i)^2 / sum_i weight_i^2, [...].

    n when all weights are equal, 1 when one example has all the weight, 0 when no example has any.
    """
    squares = weights.square().sum(-1)
    return torch.where(squares > 0, weights.sum(-1).square() / squares.clamp(min=1e-38), 0.0)


@dataclass(frozen=True)
class ScoreSums:
    """Sums over a joined batch, whoever holds it; `count` examples, `zeros` of them without weight (or
    the share of their parts)."""

    peak: Tensor
    total: Tensor
    squares: Tensor
    count: Tensor
    zeros: Tensor

    def row(self) -> Tensor:
        """As five numbers, to be sent."""
        fields = (self.peak, self.total, self.squares, self.count, self.zeros)
        return torch.stack([field.detach().double() for field in fields])

    def summary(self) -> BatchSummary:
        """How the paper's rule weighs this batch."""
        some = self.peak > 0
        return BatchSummary(
            count=int(self.count),
            finite=bool(torch.isfinite(self.total)),
            largest=torch.where(some, 1 / self.total, 0.0),
            slope=torch.where(some, self.peak * self.squares / self.total, 0.0),
            effective_sample_size=torch.where(some, self.total.square() / self.squares, 0.0),
            zero_share=(self.zeros / self.count).float(),
        )


@dataclass(frozen=True)
class BatchSummary:
    """A joined batch in numbers that all its processes share.

    largest: the largest weight. slope: sum_i weight_i score_i = <grad G, d>.
    """

    count: int
    finite: bool
    largest: Tensor
    slope: Tensor
    effective_sample_size: Tensor
    zero_share: Tensor


def summary_of(weights: Tensor, scores: Tensor) -> BatchSummary:
    """The same for weights [n] or [n, k] of any rule, given all of the joined batch."""
    return BatchSummary(
        count=len(weights),
        finite=bool(torch.isfinite(scores.sum())),
        largest=weights.max(),
        slope=(weights * scores).sum(),
        effective_sample_size=effective_sample_size(weights.flatten()),
        zero_share=(weights == 0).float().mean(),
    )


def sums_of(scores: Tensor) -> ScoreSums:
    """Of the scores [n] or [n, k] at hand; n may be 0."""
    parts = scores.shape[1] if scores.ndim == 2 else 1
    positive = scores.detach().clamp(min=0).flatten()
    peak = torch.cat([positive, positive.new_zeros(1)]).max()
    scaled = positive / (peak + (peak == 0))
    count = torch.tensor(len(scores), device=scores.device)
    zeros = (positive == 0).sum() / parts
    return ScoreSums(peak, scaled.sum(), scaled.square().sum(), count, zeros)


def combined(rows: Tensor) -> ScoreSums:
    """Of the parts that sent these rows, [parts, 5]."""
    peak = rows[:, 0].max()
    scale = rows[:, 0] / (peak + (peak == 0))
    total, squares = (rows[:, 1] * scale).sum(), (rows[:, 2] * scale.square()).sum()
    return ScoreSums(peak, total, squares, rows[:, 3].sum(), rows[:, 4].sum())
