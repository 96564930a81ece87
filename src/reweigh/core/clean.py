"""The clean side of a step: G = mean loss of the clean batch, and its gradient.

Cost: one forward and one backward on m examples. This is where the paper's look-ahead ends: the
looked-ahead parameters equal the current ones at eps = 0, so the gradient of the clean loss can be
taken here and now, once, whatever the back-end.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .graph import unhooked
from .isolation import isolated
from .loss import Batch, Loss, evaluate, require_gradient
from .parameters import Direction


def clean_gradient(
    model: nn.Module, loss: Loss, clean: Batch, *, parameters: dict[str, nn.Parameter]
) -> tuple[Tensor, Direction]:
    """The clean losses [m], detached, and the gradient of their mean; nothing is left behind.

    Parameters that the clean loss does not touch get a gradient of zero.
    """
    with isolated(model, own_stream=True), torch.enable_grad():
        losses = require_gradient(evaluate(model, loss, clean, which="clean"), which="clean")
        theta = list(parameters.values())
        with unhooked(theta):
            values = torch.autograd.grad(
                losses.mean(), theta, materialize_grads=True, allow_unused=True
            )
    dense = tuple(v.to_dense() if v.is_sparse else v for v in values)
    direction = Direction(tuple(parameters), tuple(parameters.values()), dense)
    return losses.detach(), direction
