"""Class probabilities from either form of output, for losses that are defined through them.

    logits [n, classes]            log p_c = z_c - log sum_k exp z_k
    one logit [n] or [n, 1]        log p_1 = log sigmoid(z),   log p_0 = log sigmoid(-z)

Label transitions: T_ij = p(label j | class i); every row sums to one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core import Batch, Loss
from ..errors import LossShapeError
from .contract import Problem


def log_probabilities(outputs: Tensor, *, classes: int) -> Tensor:
    """[n, classes] from a model's outputs; outputs that are log-probabilities do not change.

    >>> log_probabilities(torch.zeros(1), classes=2).exp()
    tensor([[0.5000, 0.5000]])
    """
    single = outputs.ndim == 1 or (outputs.ndim == 2 and outputs.shape[1] == 1)
    if single and classes == 2:
        logit = outputs.flatten()
        return torch.stack([functional.logsigmoid(-logit), functional.logsigmoid(logit)], dim=1)
    if outputs.ndim != 2 or outputs.shape[1] != classes:
        expected = f"(n, {classes})" + (" or (n,)" if classes == 2 else "")
        raise LossShapeError(
            f"the model returned shape {tuple(outputs.shape)}; expected logits {expected}: check "
            f"the model's last layer, or Problem.classes"
        )
    return outputs.log_softmax(dim=1)


def of_label(log_p: Tensor, labels: Tensor) -> Tensor:
    """[n] log p of each example's label, from log p [n, classes] and labels [n]."""
    return log_p.gather(1, labels.unsqueeze(1)).squeeze(1)


def losses_from(problem: Problem, rule: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """A loss from `rule(log_p [n, classes], labels [n]) -> [n]`."""

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        log_p = log_probabilities(model(inputs), classes=problem.classes)
        return rule(log_p, targets.flatten().long())

    return losses


def near_identity(classes: int, noise: float) -> Tensor:
    """T [classes, classes]: 1 - noise on the diagonal, the rest of each row equal.

    >>> near_identity(3, 0.5)
    tensor([[0.5000, 0.2500, 0.2500],
            [0.2500, 0.5000, 0.2500],
            [0.2500, 0.2500, 0.5000]])
    """
    off = noise / (classes - 1)
    return torch.full((classes, classes), off).fill_diagonal_(1 - noise)


def through(log_p: Tensor, log_transitions: Tensor) -> Tensor:
    """log sum_i p_i T_ij, [n, classes], from log p [n, classes] and log T.

    Computed in logarithms, so that there is a gradient even if p underflows. This takes memory for
    n * classes^2 numbers.
    """
    return (log_p.unsqueeze(2) + log_transitions).logsumexp(dim=1)
