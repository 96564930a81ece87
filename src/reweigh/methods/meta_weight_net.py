"""Meta-Weight-Net: a small network from loss to weight, trained so that the clean loss falls.

    v_i          = V(f_i; Theta)                              V: 1-100-1, ReLU, sigmoid
    theta^       = theta - a 1/n sum_i v_i grad f_i(theta)    a virtual step; a: the learning rate
    Theta        by Adam along  d G(theta^) / d Theta = - a/n sum_i < grad G(theta^), grad f_i > dv_i/dTheta
    weight_i     = V(f_i; Theta new) / n

G is the mean loss of the clean batch. V treats its input, the losses, as constants.

Cost: one train forward; one backward that is itself differentiated; forward and backward of the
clean batch; the backward of the update. All operations must be differentiable twice.

Shu, Xie, Yi, Zhao, Zhou, Xu, Meng: Meta-Weight-Net: Learning an Explicit Mapping For Sample
Weighting, 2019.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..core import Batch, Loss, ModelView, differentiable_kernels, eager, evaluate, trainable
from ..errors import SettingError
from .contract import Method, Problem, Stateful, View, Weighed, plain_losses


def meta_weight_net(
    problem: Problem, *, hidden: int = 100, learning_rate: float = 1e-3, weight_decay: float = 1e-4
) -> Method:
    """Weights from a small network that maps a loss to a weight, trained on the clean batches."""
    if hidden < 1:
        raise SettingError(f"hidden is {hidden}; expected one unit at least")
    network = problem.network("weight network", lambda: weight_network(hidden))
    adam = torch.optim.Adam(network.parameters(), lr=learning_rate, weight_decay=weight_decay)

    def weigh(view: View, loss: Loss) -> Weighed:
        with eager(), differentiable_kernels(ModelView(view.model)), torch.enable_grad():
            losses = evaluate(view.model, loss, view.train, which="train")
            clean_loss, gradient = meta_gradient(network, view, loss, losses)
        for parameter, g in zip(network.parameters(), gradient, strict=True):
            parameter.grad = g
        adam.step()
        weights = values(network, losses).detach() / len(losses)
        return Weighed(
            (weights * losses).sum(), weights, losses.detach(), clean_loss=clean_loss.detach()
        )

    state: dict[str, Stateful] = {"network": network, "adam": adam}
    return Method("meta_weight_net", losses=plain_losses(problem), weigh=weigh, state=state)


def weight_network(hidden: int) -> nn.Module:
    """V: from a loss to a weight between 0 and 1."""
    return nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid())


def values(network: nn.Module, losses: Tensor) -> Tensor:
    """V of each loss, [n]."""
    own = next(network.parameters())
    weights: Tensor = network(losses.detach().to(own).unsqueeze(1)).squeeze(1)
    return weights.to(losses)


def meta_gradient(
    network: nn.Module, view: View, loss: Loss, losses: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """G(theta^), and its gradient with respect to each parameter of V."""
    theta = trainable(view.model)
    step = torch.autograd.grad(
        (values(network, losses) * losses).mean(),
        list(theta.values()),
        create_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    ahead = {
        name: (p - view.learning_rate * g).detach().requires_grad_()
        for (name, p), g in zip(theta.items(), step, strict=True)
    }
    clean_loss = evaluate_at(ahead, view.model, loss, view.clean).mean()
    direction = torch.autograd.grad(
        clean_loss, list(ahead.values()), allow_unused=True, materialize_grads=True
    )
    # d theta^ / d Theta = -a d step / d Theta, and the direction does not depend on Theta.
    return clean_loss, torch.autograd.grad(
        step,
        list(network.parameters()),
        grad_outputs=[-view.learning_rate * d for d in direction],
        retain_graph=True,
    )


class _Called(nn.Module):
    """A loss as a module, so that it can be called with other parameters."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return evaluate(self.model, self.loss, batch, which="clean")


def evaluate_at(
    parameters: Mapping[str, Tensor], model: nn.Module, loss: Loss, batch: Batch
) -> Tensor:
    """The losses of `batch` with other parameters; running averages and generators do not change."""
    # The pass writes into copies of the buffers. Writing and restoring the originals would change
    # their version counters, and the backward of the train pass checks those.
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    replaced = {f"model.{name}": t for name, t in {**buffers, **parameters}.items()}
    devices = {p.device for p in parameters.values() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(int(torch.randint(2**62, ())))  # not the dropout of the next train batch
        losses: Tensor = functional_call(_Called(model, loss), replaced, (batch,))
        return losses
