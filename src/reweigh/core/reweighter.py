"""The step: weigh every example of a train batch by how much it helps a clean batch.

score_i  = < grad f_i(theta), grad G(theta) >
weight_i = max(score_i, 0) / sum_j max(score_j, 0)
update   = the user's optimizer on  sum_i weight_i f_i
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ReweighWarning, SettingError
from .backends.aligning import align, clean_side
from .backends.base import Memory
from .backends.chunked import require_chunk
from .backends.finite_difference import EPSILON
from .backends.ghost.one_pass import in_one_pass
from .backends.selection import Choice, Settled
from .backends.table import require_known
from .clean.gradient import CleanSide
from .health import Watch
from .model.loss import Batch, Loss, require_same_device
from .model.parameters import Params, modules_of, parameters_of, select
from .model.snapshot import eager, hooked
from .processes.ddp import inside, through
from .processes.fsdp import gather_anew
from .processes.group import ALONE, Group, group_of, require_group
from .rule import weights_from_scores
from .safeguard import Safeguard, make_safeguard
from .step import Step
from .update.gradient import ONE, Update
from .update.preconditioner import Diagonal, Geometry, diagonal, require_geometry
from .validate import EVAL_MODE, likely_left_in_eval


class Reweighter:
    """Weigh train batches against clean ones, in your own training loop.

    model, loss: as in `loss(model, batch) -> Tensor[n]`; see `per_example`.
    backend:     "auto" finds the cheapest exact one for the model and proves it on the first batch,
                 and again when the model or its mode changes; `.backend` says which, and why.
    safeguard:   "auto" keeps large learning rates from blowing the model up (safeguard.py);
                 None is the paper's literal rule.
    params:      align only these parameters, such as "fc": cheaper, approximate (parameters.py).
    chunk:       examples in memory at a time, for large batches (chunks.py).
    epsilon:     relative step of the finite_difference back-end.
    geometry:    the optimizer, to measure scores as it steps (geometry.py); plain by default.
    group:       who shares a batch. "auto": the processes of DistributedDataParallel or fully_shard
                 if the model is in one, all processes if torch.distributed runs, else nobody; each
                 then passes its share, and all call. None: this process trains by itself.

    >>> model = nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> from reweigh import per_example
    >>> reweigh = Reweighter(model, per_example(nn.functional.cross_entropy))
    >>> train = clean = (torch.eye(2), torch.tensor([0, 1]))
    >>> step = reweigh(train, clean)
    >>> step.loss.backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        backend: str = "auto",
        safeguard: str | Safeguard | None = "auto",
        params: Params = None,
        chunk: int | None = None,
        epsilon: float | None = None,
        geometry: Geometry = None,
        group: str | Group | None = "auto",
    ) -> None:
        require_chunk(chunk)
        if epsilon is not None and not epsilon > 0:
            raise SettingError(f"epsilon={epsilon!r}; expected a positive relative step, or None")
        self.model, self.loss = model, loss
        self._asked = require_known(backend)
        self._safeguard = make_safeguard(safeguard)
        self._params, self._chunk, self._epsilon = params, chunk, epsilon
        self._geometry = require_geometry(geometry)
        self._group = require_group(group)
        self._known: dict[Any, tuple[Choice, Memory, dict[str, nn.Parameter]]] = {}
        self._watch = Watch()
        self._mode_checked = False
        first = "not settled yet: the first batch decides" if backend == "auto" else "asked for"
        self.backend = Choice(backend, first)
        select(inside(model), params)  # an early error beats one in the first step

    def __call__(self, train: Batch, clean: Batch) -> Step:
        """Weigh `train` against `clean`; call `.loss.backward()` on what comes back."""
        with torch.enable_grad():
            return through(self.model, lambda: self._weigh(inside(self.model), train, clean))

    def _weigh(self, model: nn.Module, train: Batch, clean: Batch) -> Step:
        self._check_mode(model)
        require_same_device(train, clean)
        group = self._processes()
        gather_anew(model)
        key = _fingerprint(model)
        if (remembered := self._known.get(key)) is not None:
            known, memory, aligned = remembered
        else:
            known, memory, aligned = None, {EPSILON: self._epsilon}, select(model, self._params)
        with eager():
            side, settled, metric = self._both(model, train, clean, aligned, known, memory, group)
        if known is not settled.choice:
            self._known[key] = settled.choice, memory, aligned
        if self._asked == "auto":
            self.backend = settled.choice
        alignment, whole = settled.alignment, settled.whole
        weights = weights_from_scores(alignment.scores, whole)
        self._watch.finite(alignment.losses, side.losses, alignment.scores, whole)
        self._watch.weights(weights, whole)
        loss, factor = self._guarded(model, settled, weights, side, metric, group)
        return Step(
            loss=loss,
            weights=weights,
            scores=alignment.scores,
            losses=alignment.losses,
            clean_loss=side.mean_loss(),
            factor=factor,
            whole=whole,
        )

    def _both(
        self, model: nn.Module, train: Batch, clean: Batch, aligned: dict[str, nn.Parameter],
        known: Choice | None, memory: Memory, group: Group,
    ) -> tuple[CleanSide, Settled, Diagonal | None]:  # fmt: skip
        """The clean side, and the train batch along it: in one pass where that is the same."""
        plain = self._geometry is None and group.size == 1
        by_ghost = plain and self._asked in ("auto", "ghost") and known in (None, "ghost")
        together = None
        # Before anything else: where it does not come about, it leaves no trace but in versions of
        # buffers. And from the first step on: a run that is stopped and resumed has the same bits.
        if by_ghost and self._chunk is None:
            together = in_one_pass(model, self.loss, train, clean, aligned, memory)
            if together is not None and known is not None:
                return together.side, Settled(known, together.alignment, None), None
        side = clean_side(
            model, self.loss, clean, parameters=aligned, memory=memory, group=group,
            factored=by_ghost,
        )  # fmt: skip
        metric = diagonal(self._geometry, side.direction)
        direction = metric.bend(side.direction) if metric else side.direction
        settled = align(
            model, self.loss, train, direction, memory, asked=self._asked, known=known,
            chunk=self._chunk, group=group,
        )  # fmt: skip
        if together is not None and settled.choice == "ghost":
            return together.side, replace(settled, alignment=together.alignment), None
        return side, settled, metric

    def _processes(self) -> Group:
        """Who shares the batch."""
        if not isinstance(self._group, str):
            return self._group or ALONE
        return group_of(self.model)

    def _guarded(
        self, model: nn.Module, settled: Settled, weights: Tensor, side: CleanSide,
        metric: Diagonal | None, group: Group,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The loss to train on, with the safeguard's factor on its gradient."""
        alignment, whole, direction = settled.alignment, settled.whole, side.direction
        # Gradients are averaged over the processes, and a share is a part of a sum.
        loss = alignment.weighted(weights * group.size if group.size > 1 else weights)
        update = Update(loss, model, direction, group)
        if self._safeguard is None:
            return update.scaled(ONE), weights.new_ones(())
        clean_loss, slope = side.mean_loss(), (weights * alignment.scores).sum()
        if whole is not None:
            # On the host, so that no sum over the processes is asked for in vain.
            clean_loss, slope = clean_loss.cpu(), whole.slope.to(slope)
        if metric is None:
            factor = self._safeguard(clean_loss, direction, slope, update)
        else:
            factor = self._safeguard(
                clean_loss,
                metric.rooted(direction),
                slope,
                lambda: metric.rooted_gradient(update()),
            )
        return update.scaled(factor), factor

    def state_dict(self) -> dict[str, Any]:
        """What the safeguard has learnt; save it with the model to go on as if never stopped."""
        return {} if self._safeguard is None else dict(self._safeguard.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        if self._safeguard is not None:
            self._safeguard.load_state_dict(state)

    def _check_mode(self, model: nn.Module) -> None:
        if not self._mode_checked:
            self._mode_checked = True
            if likely_left_in_eval(model):
                warnings.warn(f"{EVAL_MODE.message} {EVAL_MODE.fix}", ReweighWarning, stacklevel=3)


def _fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What a proof depends on: modules' modes and hooks, what is trainable, precision."""
    modules = modules_of(model)
    parameters = tuple((id(p), p.requires_grad, p.dtype, p.device) for p in parameters_of(modules))
    device = parameters[0][3].type if parameters else "cpu"
    return (
        tuple((id(module), module.training, hooked(module)) for module in modules),
        parameters,
        torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
    )
