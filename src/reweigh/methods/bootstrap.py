"""Reweighing with a second opinion: the given label and the model's own, each with a weight.

    f_i0 = loss against the given label          f_i1 = loss against o_i = argmax_c p_ic
    s_ij = < grad f_ij , grad G >                G: mean loss of the clean batch
    s_i1 counts only where s_i0 < 0              the given label would do harm
    weight_ij = max(s_ij, 0) / sum over all

Where most labels are wrong, plain reweighing listens to few examples; those whose labels it refuses can
still teach what the model already makes of them, if that helps the clean batch. Where the given label
helps, it has the only say: a model that believes itself more than its data learns its own errors.

After Zhou, Wang, Chen, Yang, Li, Hu, Zhang: L2B: Learning to Bootstrap Robust Models for Combating Label
Noise, 2023; and Zhang, Zhang, Arik, Lee, Pfister: Distilling Effective Supervision from Severe Label
Noise, 2020, for the choice by sign.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Loss, Params, Safeguard, weights_from_scores
from .contract import Method, Problem, View, Weighed, plain_losses
from .reweigh import Reweighing


def reweigh_bootstrap(
    problem: Problem,
    *,
    backend: str = "auto",
    safeguard: str | Safeguard | None = "auto",
    params: Params = None,
    chunk: int | None = None,
) -> Method:
    """Ours, with the model's own label as a second candidate; options as of `Reweighter`."""
    options: dict[str, Any] = {
        "backend": backend, "safeguard": safeguard, "params": params, "chunk": chunk,
        "rule": by_sign,
    }  # fmt: skip
    reweighing = _Bootstrapping(options, problem)
    return Method(
        "reweigh_bootstrap",
        losses=plain_losses(problem),
        weigh=reweighing.weigh,
        state={"reweighter": reweighing},
    )


def by_sign(scores: Tensor) -> Tensor:
    """The weights of scores [n, 2]: the own label counts only where the given one does harm.

    >>> by_sign(torch.tensor([[1.0, 5.0], [-1.0, 3.0], [-1.0, -2.0]]))
    tensor([[0.2500, 0.0000],
            [0.0000, 0.7500],
            [0.0000, 0.0000]])
    """
    given, own = scores.unbind(1)
    return weights_from_scores(torch.stack([given, own * (given < 0)], dim=1))


class _Bootstrapping(Reweighing):
    """Train batches are marked by a third entry: their rows have two losses, clean rows one."""

    def __init__(self, options: dict[str, Any], problem: Problem) -> None:
        super().__init__(options)
        self._criterion = problem.criterion

    def weigh(self, view: View, loss: Loss) -> Weighed:
        step = self.step(view.model, self._losses, (*view.train, view.ids), view.clean)
        # The ledger keeps what the given label counts.
        size = step.shared_by / max(1, len(step.weights))
        given = step.weights[:, 0] * size
        return Weighed(step.loss, given, step.losses[:, 0], step.scores[:, 0], step.clean_loss)

    def _losses(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets, *marked = batch
        outputs = model(inputs)
        losses = self._criterion(outputs, targets)
        if not marked:
            return losses
        own = outputs.detach().argmax(1) if outputs.ndim > 1 else (outputs.detach() > 0)
        return torch.stack([losses, self._criterion(outputs, own.to(targets.dtype))], dim=1)
