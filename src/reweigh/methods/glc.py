"""Gold loss correction: label transitions, measured on the clean set, correct the train loss.

    C_ij      = mean over clean examples of class i of p~(label j | x)      p~: a plain model
    train     f_i = - log sum_c p(c | x) C_c,label
    clean     g_k = - log p(label | x)
    update    (1 - s) mean_i f_i + s mean_k g_k

s = M / (N + M) is the clean set's share of all examples: each example counts as in batches drawn
from both sets together, as in the paper. `clean_share` sets another s. If a class has no clean
example, its row of C is that of the identity.

Hendrycks, Mazeika, Wilson, Gimpel: Using Trusted Data to Train Deep Networks on Labels Corrupted by
Severe Noise, 2018.
"""

import torch
from torch import Tensor, nn

from ..core import Batch, Loss, evaluating
from ..errors import SettingError
from .contract import Method, Problem, View, Weighed
from .method_state import MethodState
from .probabilities import log_probabilities, losses_from, of_label, through
from .requirements import require

LEAST = 1e-12  # smallest transition, so that the logarithm is finite


def glc(problem: Problem, *, clean_share: float | None = None) -> Method:
    """Train with a loss that knows how labels go wrong, and on the clean set as it is."""
    n, m = len(problem.train_labels), len(problem.clean_labels)
    share = m / (n + m) if clean_share is None else clean_share
    if not 0 <= share < 1:
        raise SettingError(f"clean_share is {share}; expected from 0 up to, not including, 1")
    pretrained = require(problem, "pretrained", "glc")
    state = MethodState(transitions=measured(pretrained, problem.clean, classes=problem.classes))
    plain = losses_from(problem, lambda log_p, labels: -of_label(log_p, labels))

    def corrected(log_p: Tensor, labels: Tensor) -> Tensor:
        transitions = state["transitions"].to(log_p).clamp(min=LEAST)
        return -of_label(through(log_p, transitions.log()), labels)

    def weigh(view: View, loss: Loss) -> Weighed:
        losses = loss(view.model, view.train)
        clean = plain(view.model, view.clean).mean()
        weights = torch.full_like(losses, (1 - share) / len(losses)).detach()
        update = (weights * losses).sum() + share * clean
        return Weighed(update, weights, losses.detach(), clean_loss=clean.detach())

    return Method(
        "glc", losses=losses_from(problem, corrected), weigh=weigh, state={"transitions": state}
    )


def measured(model: nn.Module, clean: Batch, *, classes: int) -> Tensor:
    """C [classes, classes] from the model's probabilities, in evaluation mode, on the clean set."""
    inputs, targets = clean
    with evaluating(model):
        p = log_probabilities(model(inputs), classes=classes).exp()
    member = nn.functional.one_hot(targets.flatten().long(), classes).to(p)
    counts = member.sum(0).unsqueeze(1)
    return torch.where(counts > 0, member.T @ p / counts.clamp(min=1), torch.eye(classes).to(p))
