"""From signed scores to weights: the paper's rule.

    weight_i = max(score_i, 0) / sum_j max(score_j, 0),      all zero when no score is positive

The learning rate of the look-ahead step and that of the meta step both multiply every score, so
they cancel in the quotient: there is nothing to tune.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .sums import Sums


def weights_from_scores(scores: Tensor, whole: Sums | None = None) -> Tensor:
    """Rectify and normalise `scores` [n]: non-negative, summing to one, or all zero.

    With the sums of a `whole` batch, of which these scores are a part, the weights sum to one over
    that; without, nothing is asked of other processes.

    >>> weights_from_scores(torch.tensor([3.0, -1.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    positive = scores.detach().clamp(min=0)
    # Dividing by the largest first keeps the sum finite and normal for any scale of the gradients.
    if whole is not None:
        positive = positive / (whole.peak + (whole.peak == 0))
        return positive / (whole.total + (whole.total == 0))
    least = torch.finfo(positive.dtype).tiny  # in place of a zero
    positive = positive / positive.max().clamp(min=least)
    return positive / positive.sum().clamp(min=least)


def effective_sample_size(weights: Tensor) -> Tensor:
    """How many examples the weights [..., n] amount to: (sum_i weight_i)^2 / sum_i weight_i^2, [...].

    n when all weights are equal, 1 when one example has all the weight, 0 when no example has any.
    """
    squares = weights.square().sum(-1)
    return torch.where(squares > 0, weights.sum(-1).square() / squares.clamp(min=1e-38), 0.0)
