"""Scores of a batch, as a function: the quantity everything else is built on.

    score_i = < grad f_i(theta), grad G(theta) >

Signed and unscaled; G is the mean loss over the clean batch. Positive: a small step on example i
lowers the clean loss. Exactly for the losses of one training forward: its dropout masks, its batch
statistics, with BatchNorm's coupling between the examples included. Hooks that a user registered on
parameters act on the update, where they belong, and not on the scores.
"""

from torch import Tensor, nn

from .model import Batch, Loss, Params, require_finite
from .processes import Group
from .session import Session


def example_scores(
    model: nn.Module,
    loss: Loss,
    train: Batch,
    clean: Batch,
    *,
    backend: str = "auto",
    params: Params = None,
    chunk: int | None = None,
    epsilon: float | None = None,
    group: str | Group | None = "auto",
) -> Tensor:
    """The signed scores [n] of the train batch, detached.

    Where processes share the batch (`group`, as in `Reweighter`), the scores of a process's own
    share against the clean batch of all; every process must call.

    Leaves the model as one plain training forward on `train` would. For use in a loop prefer
    `Reweighter`, which remembers what it found out about the model.

    >>> import torch
    >>> from torch.nn.functional import mse_loss
    >>> from reweigh import per_example
    >>> line = nn.Linear(1, 1, bias=False)
    >>> _ = line.weight.data.fill_(1.0)
    >>> x = torch.tensor([[1.0], [1.0]])
    >>> example_scores(line, per_example(mse_loss), (x, torch.tensor([[3.0], [-3.0]])),
    ...                (x, torch.tensor([[2.0], [2.0]])))
    tensor([  8., -16.])
    """
    session = Session(
        model, loss, backend=backend, params=params, chunk=chunk, epsilon=epsilon, group=group
    )
    sides = session.both_sides(train, clean, cheapest=False)
    require_finite(sides.clean.losses, which="clean")
    require_finite(sides.settled.alignment.losses, which="train")
    return sides.settled.alignment.scores
