"""Scores as directional derivatives: one forward pass with tangents.

    score_i = d/d alpha f_i(theta + alpha * grad G)  at alpha = 0

All n scores come from one pass, whatever couples the examples, because the tangent of the losses
along one direction *is* the vector of scores. The tangents travel beneath autograd (core/ops), so
this is also the training forward: the update goes through its graph.

Cost: about two forwards more than plain training (a convolution has two tangent terms), and the
tangents that are still needed in memory; where `fully_shard` has spread the parameters, those of all that
autograd keeps. Where tensor parallelism has cut the parameters, their tangents are cut as they are. Invalid where
an operation has neither a rule nor a forward-mode formula, and refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..model import Direction, custom_function, differentiable_kernels, differentiable_losses
from ..ops import Outlived, TangentCell, TangentMode, autograd_records, cell_of, tensors_in
from ..torch_internals import base_of, following_redistributions, is_mutable
from .base import Alignment, Backend, TrainPass
from .sharded_tangents import by_unit

# By autograd, for what it saves, and often; a question that only tensors without values hand on.
_NO_TANGENT = {torch.ops.aten.detach.default, torch.ops.prim.device.default}


class Propagate(TangentMode):
    """Every operation with a tangent among its arguments hands one on to its result.

    A tangent would live as long as its tensor, and autograd keeps most of those until backward. With
    the `last_uses` of an earlier pass each is freed as soon as it has been read for the last time.
    """

    def __init__(
        self, model: nn.Module, direction: Direction, last_uses: LastUses | None = None
    ) -> None:
        super().__init__(model, direction)
        self.path: list[Hashable] = []
        self.last_uses: LastUses = {}  # of this pass
        self._expected = last_uses or {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        number = len(self.path)
        self.path.append(func)
        if func in _NO_TANGENT or not autograd_records(func):
            return func(*args, **kwargs)
        read = [
            cell
            for value in tensors_in((*args, *kwargs.values()))
            if self.tangent(value) is not None and (cell := self.cell(value)) is not None
        ]
        if not read:
            return func(*args, **kwargs)
        whole = base_of(args[0]) if is_mutable(func) else None
        if whole is not None and (cell := cell_of(whole)) is not None:
            read.append(cell)
        out, tangents = self.derive(func, args, kwargs)
        self.assign(func, args, out, tangents)
        results = out if isinstance(out, (tuple, list)) else (out,)
        for place, value in enumerate(results if whole is None else (*results, whole)):
            cell = cell_of(value) if isinstance(value, Tensor) else None
            if cell is not None and cell not in read:
                cell.born = (number, place)
        self._have_read(read, number)
        return out

    def redistributed(self, function: Callable[..., Any], value: Any, *rest: Any) -> Any:
        """As an operation, which a dispatch mode does not see."""
        number = len(self.path)
        self.path.append(function)
        out = super().redistributed(function, value, *rest)
        if self.tangent(out) is not None and (cell := cell_of(out)) is not None:
            cell.born = (number, 0)
            if (before := self.cell(value)) is not None:
                self._have_read([before], number)
        return out

    def _have_read(self, cells: Sequence[TangentCell], number: int) -> None:
        for cell in cells:
            if cell.born is not None:
                self.last_uses[cell.born] = number
                if self._expected.get(cell.born) == number:
                    cell.tangent, cell.spent = None, True

    def keep(self, value: Tensor) -> None:
        """Expect that this tensor's tangent is asked for after the pass."""
        cell = cell_of(value)
        if cell is not None:
            self.last_uses.pop(cell.born, None)


LastUses = dict[Any, int]  # by which operation of a pass each tangent was read last


class ForwardMode(Backend):
    """Scores by tangents that ride on the training forward."""

    name = "forward_mode"
    exact = True
    cost = "2 forwards"

    def __init__(self) -> None:
        self.path: Hashable = None  # every operation of the last pass
        self._last_uses: LastUses | None = None

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """Scores are the tangents of the losses."""
        if pass_.view.sharded:
            return self._align_sharded(pass_, direction)
        try:
            with pass_.view.undone_on_error():
                return self._align(pass_, direction)
        except Outlived:
            self._last_uses = None
            return self._align(pass_, direction)

    def _align_sharded(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """One pass in any case: another would be an exchange for which other processes do not wait. So no
        tangent is freed because the pass before did not need it any more."""
        self._last_uses = None
        try:
            return self._align(pass_, direction)
        except Outlived as error:
            raise UnsupportedModelError(
                "a parameter is used after the forward of the module that fully_shard has gathered it for; "
                "expected uses inside of it: give fully_shard a module that holds them all"
            ) from error

    def _align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        view = pass_.view
        if view.sharded:  # nothing to start from: each unit of fully_shard brings its own
            mode = Propagate(view.model, Direction((), (), ()), self._last_uses)
        else:
            mode = Propagate(view.model, direction, self._last_uses)
        units = by_unit(mode, view.model, direction) if view.sharded else nullcontext()
        cut = following_redistributions(mode.redistributed) if view.split else nullcontext()
        try:
            with differentiable_kernels(view, once=True), torch.enable_grad(), cut, units, mode:
                losses = differentiable_losses(view.model, pass_.loss, pass_.batch, which="train")
            tangent = mode.tangent(losses)
            mode.keep(losses)
        finally:
            mode.release()
        path = tuple(mode.path)
        if path != self.path and (name := custom_function(losses)) is not None:
            raise UnsupportedModelError(
                f"the autograd.Function {name} hides its operations, so that tangents do not get through "
                f"it; expected operations of PyTorch: use backend='auto' or 'double_backward'"
            )
        self.path, self._last_uses = path, mode.last_uses
        scores = torch.zeros_like(losses) if tangent is None else tangent.detach().clone()
        return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
