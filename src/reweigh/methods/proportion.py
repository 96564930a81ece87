"""Inverse class frequency.

    weight_i = (1 / N_c(i)) / sum_j (1 / N_c(j))      N_c: train examples labelled c, as given

Normalised over the batch, so that the size of a step does not depend on which classes are in it.
"""

from torch import Tensor

from ..core import weights_from_scores
from .contract import Method, Problem, View, plain_method


def proportion(problem: Problem) -> Method:
    """Rare classes count more, so that all classes have the same total weight over the train part."""
    counts = problem.train_labels.long().bincount(minlength=problem.classes)

    def weights(view: View, losses: Tensor) -> Tensor:
        return weights_from_scores(1 / counts[problem.given(view.ids)].to(losses))

    return plain_method(problem, "proportion", weights)
