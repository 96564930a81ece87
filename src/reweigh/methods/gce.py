"""Generalised cross-entropy: between cross-entropy and the mean absolute error.

    f_i = (1 - p_y^q) / q      q = .7;   q -> 0: cross-entropy;   q = 1: half the absolute error

The gradient is p_y^q times that of cross-entropy, so examples whose label the model finds unlikely
count less. Zhang, Sabuncu: Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
Labels, 2018 (the form without truncation).
"""

from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, evenly, weighed_by
from .probabilities import losses_from, of_label


def gce(problem: Problem, *, q: float = 0.7) -> Method:
    """A bounded loss: the pull of a single wrong label is limited."""
    if not 0 < q <= 1:
        raise SettingError(f"q is {q}; expected more than 0 (cross-entropy) and at most 1")

    def rule(log_p: Tensor, labels: Tensor) -> Tensor:
        return -(q * of_label(log_p, labels)).expm1() / q

    return Method("gce", losses=losses_from(problem, rule), weigh=weighed_by(evenly))
