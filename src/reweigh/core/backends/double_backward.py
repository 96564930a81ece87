"""The reference: Algorithm 1 of the paper, line by line.

    eps = 0;  theta_hat(eps) = theta - alpha * grad_theta sum_i eps_i f_i(theta)
    score_i = -1/alpha * d G(theta_hat(eps)) / d eps_i   at eps = 0   =   < grad f_i, grad G >

Why is eps zero? It is not a weight but the point at which a derivative is taken: how would the
clean loss change if example i were given a little weight? At eps = 0 the looked-ahead parameters
equal the current ones, which is why lines 8 and 9 can be evaluated at theta.

Cost: a double backward, about 5 forwards, and the memory of a second graph. Exact for every model
whose backward pass can itself be differentiated, with any coupling between examples.
"""

import torch
from torch import Tensor

from ...errors import UnsupportedModelError
from ..model import Direction, differentiable_kernels, differentiable_losses, unhooked
from .base import Alignment, Backend, TrainPass


class DoubleBackward(Backend):
    """Scores by differentiating the look-ahead step with respect to eps."""

    name = "double_backward"
    exact = True
    cost = "about 5 forwards"

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """Algorithm 1, lines 4 to 10; for the rest see rule.py and reweighter.py."""
        model = pass_.view.model
        with differentiable_kernels(pass_.view), torch.enable_grad():
            # line 4: forward on the train batch
            losses = differentiable_losses(model, pass_.loss, pass_.batch, which="train")
            # line 5: eps = 0
            eps = torch.zeros_like(losses, requires_grad=True)
            try:
                with pass_.view.beside_the_step():
                    d_eps = _meta_gradient(losses, eps, direction)
            except (RuntimeError, NotImplementedError) as error:
                if "out of memory" in str(error):
                    raise
                raise UnsupportedModelError(
                    f"{type(model).__name__} cannot be differentiated twice ({error}); expected "
                    f"operations with a differentiable backward: use backend='auto', or "
                    f"'finite_difference' if nothing exact runs"
                ) from error
        return Alignment(losses.detach(), -d_eps.detach(), lambda w: (w * losses).sum())


def _meta_gradient(losses: Tensor, eps: Tensor, direction: Direction) -> Tensor:
    """d G(theta_hat(eps)) / d eps at eps = 0."""
    # line 6: the gradient of the perturbed loss, kept as a function of eps
    with unhooked(direction.parameters):
        gradient = torch.autograd.grad(
            losses, direction.parameters, grad_outputs=eps, create_graph=True, allow_unused=True
        )
    # line 7: the look-ahead step; alpha = 1 and the constant theta drop out of line 10
    used = [(g, v) for g, v in zip(gradient, direction.values, strict=True) if g is not None]
    lookahead = [-g for g, _ in used]
    if not any(step.requires_grad for step in lookahead):
        return torch.zeros_like(eps)
    # lines 8-10: `direction` is the gradient of the clean loss at theta_hat = theta; the chain rule
    # carries it on to eps
    (d_eps,) = torch.autograd.grad(
        lookahead, eps, grad_outputs=[v for _, v in used], retain_graph=True
    )
    return d_eps
