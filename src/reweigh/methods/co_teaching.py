"""Co-teaching: two networks, each trained on the examples that the other finds easy.

    keep      the (1 - R(t)) n examples of the batch with the smallest losses, at least one
    R(t)      = tau min(t / T_k, 1)      T_k: the first twentieth of the run (`ramp`)
    update    mean of a_i over what b keeps + mean of b_i over what a keeps      a, b: their losses

tau (`forget_rate`) is the share of wrong labels. It is not estimated. The default .4 is the noise
rate of the usual experiments, so there the method is told what other methods must find out. On your
own data, give the share you believe. At test time the first network is used.

The second network is a copy of the first. In each trainable tensor the non-zero values are shuffled,
which gives another draw of the model's own initialisation. Frozen tensors stay equal.

Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama: Co-teaching: Robust Training of Deep Neural Networks
with Extremely Noisy Labels, 2018.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Loss
from ..errors import SettingError
from .contract import Method, Problem, View, Weighed


class TwoNetworks(nn.Module):
    """Two networks side by side; forward gives both outputs."""

    def __init__(self, base: nn.Module, peer: nn.Module) -> None:
        super().__init__()
        self.base, self.peer = base, peer

    def forward(self, *inputs: Any, **options: Any) -> tuple[Any, Any]:
        """The outputs of `base` and of `peer`."""
        return self.base(*inputs, **options), self.peer(*inputs, **options)


def co_teaching(problem: Problem, *, forget_rate: float = 0.4, ramp: float = 0.05) -> Method:
    """Two networks hand each other the examples with small losses."""
    if not 0 <= forget_rate < 1:
        raise SettingError(f"forget_rate is {forget_rate}; expected a share, 0 up to but below 1")
    if not 0 <= ramp <= 1:
        raise SettingError(f"ramp is {ramp}; expected a share of the run, 0 to 1")

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        """The losses of the first network; `model` may be both networks or the first alone."""
        inputs, targets = batch
        outputs = model(inputs)
        return problem.criterion(outputs[0] if isinstance(outputs, tuple) else outputs, targets)

    def weigh(view: View, loss: Loss) -> Weighed:
        inputs, targets = view.train
        a, b = (problem.criterion(outputs, targets) for outputs in view.model(inputs))
        forgotten = forget_rate * min(1.0, view.step / max(1.0, ramp * problem.steps))
        count = max(1, int((1 - forgotten) * len(a)))
        weights = smallest(b, count)
        update = (weights * a).sum() + (smallest(a, count) * b).sum()
        return Weighed(update, weights, a.detach())

    def wrap(model: nn.Module) -> nn.Module:
        return TwoNetworks(model, shuffled(model, problem.generator("peer network")))

    return Method("co_teaching", losses=losses, weigh=weigh, wrap=wrap)


def smallest(losses: Tensor, count: int) -> Tensor:
    """[n] weights: 1/count for the `count` smallest losses, 0 for the others."""
    values = losses.detach()
    kept = values.topk(count, largest=False).indices
    return torch.zeros_like(values).index_fill(0, kept, 1 / count)


def shuffled(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy of the model with the non-zero values of each trainable tensor in random order."""
    peer = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in peer.parameters():
            if parameter.requires_grad:
                flat = parameter.clone(memory_format=torch.contiguous_format).view(-1)
                places = flat.nonzero().flatten()
                order = torch.randperm(len(places), generator=generator).to(places.device)
                flat[places] = flat[places[order]]
                parameter.copy_(flat.view_as(parameter))
    return peer
