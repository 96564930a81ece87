"""Scores as directional derivatives: one forward pass with tangents.

    score_i = d/d alpha f_i(theta + alpha * grad G)  at alpha = 0

All n scores come from one pass, whatever couples the examples, because the tangent of the losses
along one direction *is* the vector of scores. The tangents travel beneath autograd (tangents.py), so
this is also the training forward: the update goes through its graph.

Cost: about two forwards more than plain training (a convolution has two tangent terms), and the
tangents of live activations in memory. Invalid where an operation has neither a rule nor a
forward-mode formula, and refused there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload

from .alignment import Alignment, Memory
from .isolation import differentiable_kernels
from .loss import Batch, Loss, evaluate, require_gradient
from .parameters import Direction
from .tangents import TangentMode, recorded, tensors

PATH = "path"  # in memory: every operation of the last pass, for whoever proves it


class Propagate(TangentMode):
    """Every operation with a tangent among its arguments hands one on to its result."""

    def __init__(self, model: nn.Module, direction: Direction) -> None:
        super().__init__(model, direction)
        self.path: list[OpOverload] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        self.path.append(func)
        if not recorded(func) or not self._involved(args, kwargs):
            return func(*args, **kwargs)
        out, tangents = self.derive(func, args, kwargs)
        self.assign(func, args, out, tangents)
        return out

    def _involved(self, args: Any, kwargs: Any) -> bool:
        return any(self.tangent(value) is not None for value in tensors((*args, *kwargs.values())))


def align(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Scores by tangents that ride on the training forward."""
    mode = Propagate(model, direction)
    try:
        with differentiable_kernels(model), torch.enable_grad(), mode:
            losses = require_gradient(evaluate(model, loss, train, which="train"), which="train")
        tangent = mode.tangent(losses)
    finally:
        mode.release()
    memory[PATH] = tuple(mode.path)
    scores = torch.zeros_like(losses) if tangent is None else tangent.detach().clone()
    return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
