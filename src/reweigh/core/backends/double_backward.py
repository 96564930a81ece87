"""The reference: Algorithm 1 of the paper, line by line.

    eps = 0;  theta_hat(eps) = theta - alpha * grad_theta sum_i eps_i f_i(theta)
    score_i = -1/alpha * d G(theta_hat(eps)) / d eps_i   at eps = 0   =   < grad f_i, grad G >

Why is eps zero? It is not a weight but the point at which a derivative is taken: how would the
clean loss change if example i were given a little weight? At eps = 0 the looked-ahead parameters
equal the current ones, which is why lines 8 and 9 can be evaluated at theta.

Cost: a double backward, about 5 forwards, and the memory of a second graph. Exact for every model
whose backward pass can itself be differentiated, with any coupling between examples.
"""

from __future__ import annotations

import torch
from torch import nn

from ...errors import UnsupportedModelError
from ..model.autograd_graph import unhooked
from ..model.loss import Batch, Loss, evaluate, require_gradient
from ..model.parameters import Direction
from ..model.snapshot import differentiable_kernels
from .base import Alignment, Memory


def align(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Scores by differentiating the look-ahead step with respect to eps."""
    theta = direction.parameters
    with differentiable_kernels(model), torch.enable_grad():
        # line 4: forward on the train batch
        losses = require_gradient(evaluate(model, loss, train, which="train"), which="train")
        # line 5: eps = 0
        eps = torch.zeros_like(losses, requires_grad=True)
        try:
            # line 6: the gradient of the perturbed loss, kept as a function of eps
            with unhooked(theta):
                gradient = torch.autograd.grad(
                    losses, theta, grad_outputs=eps, create_graph=True, allow_unused=True
                )
            # line 7: the look-ahead step; alpha = 1 and the constant theta drop out of line 10
            used = [
                (g, v) for g, v in zip(gradient, direction.values, strict=True) if g is not None
            ]
            lookahead = [-g for g, _ in used]
            # lines 8-10: `direction` is the gradient of the clean loss at theta_hat = theta;
            # the chain rule carries it on to eps
            if any(step.requires_grad for step in lookahead):
                (d_eps,) = torch.autograd.grad(
                    lookahead, eps, grad_outputs=[v for _, v in used], retain_graph=True
                )
            else:
                d_eps = torch.zeros_like(eps)
        except (RuntimeError, NotImplementedError) as error:
            if "out of memory" in str(error):
                raise
            raise UnsupportedModelError(
                f"{type(model).__name__} cannot be differentiated twice ({error}); expected "
                f"operations with a differentiable backward: use backend='auto', or "
                f"'finite_difference' if nothing exact runs"
            ) from error
    # line 11 and on: see weights.py and reweighter.py
    return Alignment(losses.detach(), -d_eps.detach(), lambda w: (w * losses).sum())
