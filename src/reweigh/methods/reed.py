"""Bootstrapping: the target is a mixture of the given label and the model's own prediction.

    hard    f_i = - beta log p_y - (1 - beta) log max_c p_c             beta = .8
    soft    f_i = - beta log p_y - (1 - beta) sum_c p_c log p_c         beta = .95

y is the label as given. In the soft form the gradient flows through the target too, so the second
term minimises the entropy of the prediction.

Reed, Lee, Anguelov, Szegedy, Erhan, Rabinovich: Training Deep Neural Networks on Noisy Labels with
Bootstrapping, 2015.
"""

from torch import Tensor

from ..errors import SettingError
from .contract import Method, Problem, evenly, weighed_by
from .probabilities import losses_from, of_label


def reed_hard(problem: Problem, *, beta: float = 0.8) -> Method:
    """Targets mixed with the class that the model predicts."""
    _check(beta)

    def rule(log_p: Tensor, labels: Tensor) -> Tensor:
        return -beta * of_label(log_p, labels) - (1 - beta) * log_p.amax(1)

    return Method("reed_hard", losses=losses_from(problem, rule), weigh=weighed_by(evenly))


def reed_soft(problem: Problem, *, beta: float = 0.95) -> Method:
    """Targets mixed with the probabilities that the model predicts."""
    _check(beta)

    def rule(log_p: Tensor, labels: Tensor) -> Tensor:
        return -beta * of_label(log_p, labels) - (1 - beta) * (log_p.exp() * log_p).sum(1)

    return Method("reed_soft", losses=losses_from(problem, rule), weigh=weighed_by(evenly))


def _check(beta: float) -> None:
    if not 0 <= beta <= 1:
        raise SettingError(f"beta is {beta}; expected the given label's share, 0 to 1")
