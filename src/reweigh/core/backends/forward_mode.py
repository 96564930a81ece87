"""Scores as directional derivatives: one forward pass with tangents.

    score_i = d/d alpha f_i(theta + alpha * grad G)  at alpha = 0

All n scores come from one pass, whatever couples the examples, because the tangent of the losses
along one direction *is* the vector of scores. The tangents travel beneath autograd (core/ops), so
this is also the training forward: the update goes through its graph.

Cost: about two forwards more than plain training (a convolution has two tangent terms), and the
tangents that are still needed in memory. Invalid where an operation has neither a rule nor a
forward-mode formula, and refused there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from ..model.loss import Batch, Loss, evaluate, require_gradient
from ..model.parameters import Direction
from ..model.snapshot import differentiable_kernels, undone_on_error
from ..ops import Outlived, TangentMode, autograd_records, cell_of, tensors
from .base import Alignment, Memory

PATH = "path"  # in memory: every operation of the last pass, for whoever proves it
LAST_USES = "last uses"  # in memory: by which operation each tangent was last read


class Propagate(TangentMode):
    """Every operation with a tangent among its arguments hands one on to its result.

    A tangent would live as long as its tensor, and autograd keeps most of those until backward. With
    the `last_uses` of an earlier pass each is freed as soon as it has been read for the last time.
    """

    def __init__(
        self, model: nn.Module, direction: Direction, last_uses: LastUses | None = None
    ) -> None:
        super().__init__(model, direction)
        self.path: list[OpOverload] = []
        self.last_uses: LastUses = {}  # of this pass
        self._expected = last_uses or {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        turn = len(self.path)
        self.path.append(func)
        if not autograd_records(func):
            return func(*args, **kwargs)
        read = [
            cell
            for value in tensors((*args, *kwargs.values()))
            if self.tangent(value) is not None and (cell := cell_of(value)) is not None
        ]
        if not read:
            return func(*args, **kwargs)
        out, tangents = self.derive(func, args, kwargs)
        self.assign(func, args, out, tangents)
        for place, value in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
            cell = cell_of(value) if isinstance(value, Tensor) else None
            if cell is not None and cell not in read:
                cell.born = (turn, place)
        for cell in read:
            if cell.born is not None:
                self.last_uses[cell.born] = turn
                if self._expected.get(cell.born) == turn:
                    cell.tangent, cell.spent = None, True
        return out

    def keep(self, value: Tensor) -> None:
        """Expect that this tensor's tangent is asked for after the pass."""
        cell = cell_of(value)
        if cell is not None:
            self.last_uses.pop(cell.born, None)


LastUses = dict[Any, int]


def align(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Scores by tangents that ride on the training forward."""
    try:
        with undone_on_error(model):
            return _align(model, loss, train, direction, memory)
    except Outlived:
        del memory[LAST_USES]
        return _align(model, loss, train, direction, memory)


def _align(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    mode = Propagate(model, direction, memory.get(LAST_USES))
    try:
        with differentiable_kernels(model), torch.enable_grad(), mode:
            losses = require_gradient(evaluate(model, loss, train, which="train"), which="train")
        tangent = mode.tangent(losses)
        mode.keep(losses)
    finally:
        mode.release()
    memory[PATH], memory[LAST_USES] = tuple(mode.path), mode.last_uses
    scores = torch.zeros_like(losses) if tangent is None else tangent.detach().clone()
    return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
