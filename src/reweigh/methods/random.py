"""Random weights: a control that has the noise of the learnt weights, but no information.

    weight_i = max(z_i, 0) / sum_j max(z_j, 0)      z_i ~ N(0, 1), drawn anew at every step

Ren, Zeng, Yang, Urtasun: Learning to Reweight Examples for Robust Deep Learning, 2018.
"""

import torch
from torch import Tensor

from ..core import weights_from_scores
from .contract import Method, Problem, View, plain_method


def random(problem: Problem) -> Method:
    """Rectified Gaussian weights, normalised over the batch."""

    def weights(view: View, losses: Tensor) -> Tensor:
        return random_weights(problem, view.step, len(losses))

    return plain_method(problem, "random", weights)


def random_weights(problem: Problem, step: int, n: int) -> Tensor:
    """[n], by the seed of the problem and the step."""
    generator = problem.generator("random weights", step)
    return weights_from_scores(torch.randn(n, generator=generator))
