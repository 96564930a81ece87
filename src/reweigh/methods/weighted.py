"""Weights of an oracle that knows the noise rate of each class.

    weight_i = r_c(i) / sum_j r_c(j)      r_c: share of right labels among those given class c

Ren, Zeng, Yang, Urtasun: Learning to Reweight Examples for Robust Deep Learning, 2018. Outside an
experiment nobody knows r. The method shows how much it helps to know the noise of each class, but
not which examples are wrong.
"""

from torch import Tensor

from ..core import weights_from_scores
from .contract import Method, Problem, View, plain_method
from .requirements import require


def weighted(problem: Problem) -> Method:
    """Examples count by the share of right labels in the class they were given."""
    right = require(problem, "right_share", "weighted")

    def weights(view: View, losses: Tensor) -> Tensor:
        return weights_from_scores(right[problem.given(view.ids).to(right.device)].to(losses))

    return plain_method(problem, "weighted", weights)
