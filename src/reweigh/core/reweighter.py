"""The step: weigh every example of a train batch by how much it helps a clean batch.

score_i  = < grad f_i(theta), grad G(theta) >
weight_i = max(score_i, 0) / sum_j max(score_j, 0)
update   = the user's optimizer on  sum_i weight_i f_i
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ReweighWarning, SettingError, UnsupportedModelError
from .alignment import Alignment, Memory
from .backends import Choice, choose, require_known, run
from .chunks import require_chunk, run_in_chunks
from .clean import clean_gradient
from .device import on_host
from .finite_difference import EPSILON
from .geometry import Diagonal, Geometry, diagonal, require_geometry
from .graph import leaves, unhooked, with_gradient
from .isolation import eager, undone_on_error
from .loss import Batch, Loss, require_same_device
from .parameters import Direction, Params, modules_of, parameters_of, select
from .safeguard import Safeguard, make_safeguard
from .step import Step
from .validate import EVAL_MODE, likely_left_in_eval
from .watch import Watch
from .weights import weights_from_scores


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
    ) -> None:
        require_chunk(chunk)
        if epsilon is not None and not epsilon > 0:
            raise SettingError(f"epsilon={epsilon!r}; expected a positive relative step, or None")
        self.model, self.loss = model, loss
        self._asked = require_known(backend)
        self._safeguard = make_safeguard(safeguard)
        self._params, self._chunk, self._epsilon = params, chunk, epsilon
        self._geometry = require_geometry(geometry)
        self._known: dict[Any, tuple[Choice, Memory]] = {}
        self._watch = Watch()
        self._mode_checked = False
        first = "not settled yet: the first batch decides" if backend == "auto" else "asked for"
        self.backend = Choice(backend, first)
        # An early error beats one in the first step.
        self._selected: tuple[Any, dict[str, nn.Parameter]] = None, select(model, params)

    def __call__(self, train: Batch, clean: Batch) -> Step:
        """Weigh `train` against `clean`; call `.loss.backward()` on what comes back."""
        with torch.enable_grad():
            return self._weigh(train, clean)

    def _weigh(self, train: Batch, clean: Batch) -> Step:
        self._check_mode()
        require_same_device(train, clean)
        key = _fingerprint(self.model)
        with eager():
            clean_losses, direction = clean_gradient(
                self.model, self.loss, clean, parameters=self._aligned(key)
            )
            metric = diagonal(self._geometry, direction)
            alignment = self._align(key, train, metric.bend(direction) if metric else direction)
        weights = weights_from_scores(alignment.scores)
        self._watch.finite(alignment.losses, clean_losses, alignment.scores)
        self._watch.weights(weights)
        clean_loss = clean_losses.mean()
        loss, factor = self._guarded(alignment, weights, clean_loss, direction, metric)
        return Step(
            loss=loss,
            weights=weights,
            scores=alignment.scores,
            losses=alignment.losses,
            clean_loss=clean_loss,
            factor=factor,
        )

    def _aligned(self, key: Any) -> dict[str, nn.Parameter]:
        """The parameters that `params=` picks, looked up again when the model has changed."""
        if key != self._selected[0]:
            self._selected = key, select(self.model, self._params)
        return self._selected[1]

    def _align(self, key: Any, train: Batch, direction: Direction) -> Alignment:
        """Use what is known about the model in its present mode, or find out."""
        choice, memory = self._known.get(key, (Choice(self._asked, ""), {EPSILON: self._epsilon}))
        arguments = (self.model, self.loss, train, direction, memory)
        if self._chunk is not None:
            choice, alignment = run_in_chunks(
                choice, *arguments, chunk=self._chunk, auto=self._asked == "auto"
            )
        elif choice == "auto":
            choice, alignment = choose(*arguments)
        elif self._asked == "auto":
            try:
                with undone_on_error(self.model):
                    alignment = run(choice, *arguments)
            except UnsupportedModelError:  # the model has taken a path it had not taken before
                choice, alignment = choose(*arguments)
        else:
            alignment = run(choice, *arguments)
        self._known[key] = (choice, memory)
        if self._asked == "auto":
            self.backend = choice
        return alignment

    def _guarded(
        self, alignment: Alignment, weights: Tensor, clean_loss: Tensor, direction: Direction,
        metric: Diagonal | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The loss to train on, with the safeguard's factor on its gradient."""
        loss = alignment.weighted(weights)
        if self._safeguard is None:
            return loss, torch.ones_like(loss.detach())
        ready = _Ready(loss, direction)
        slope = (weights * alignment.scores).sum()
        if metric is None:
            factor = self._safeguard(clean_loss, direction, slope, ready)
        else:
            factor = self._safeguard(
                clean_loss, metric.rooted(direction), slope, lambda: metric.rooted_gradient(ready())
            )
        return ready.scaled(factor), factor

    def state_dict(self) -> dict[str, Any]:
        """What the safeguard has learnt; save it with the model to go on as if never stopped."""
        return {} if self._safeguard is None else dict(self._safeguard.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        if self._safeguard is not None:
            self._safeguard.load_state_dict(state)

    def _check_mode(self) -> None:
        if not self._mode_checked:
            self._mode_checked = True
            if likely_left_in_eval(self.model):
                warnings.warn(f"{EVAL_MODE.message} {EVAL_MODE.fix}", ReweighWarning, stacklevel=3)


class _Ready:
    """The gradient of a loss, computed on demand and then handed out by backward as it is."""

    def __init__(self, loss: Tensor, direction: Direction) -> None:
        self._loss, self._direction = loss, direction
        self._inputs: list[Tensor] = []
        self._gradient: Sequence[Tensor | None] | None = None

    def __call__(self) -> list[Tensor | None]:
        """The gradient per aligned parameter."""
        if self._gradient is None:
            self._inputs = leaves(self._loss.grad_fn)
            with unhooked(self._inputs):  # backward will run the user's hooks, once
                self._gradient = torch.autograd.grad(self._loss, self._inputs, allow_unused=True)
        found = {id(x): g for x, g in zip(self._inputs, self._gradient, strict=True)}
        return [found.get(id(p)) for p in self._direction.parameters]

    def scaled(self, factor: Tensor) -> Tensor:
        """The loss, its value unchanged, its gradient times `factor`."""
        gradient = self._gradient
        if gradient is None:
            # Not looked at: the graph is still there, and so is everything PyTorch can do with it.
            return self._loss if _is_one(factor) else _scale(self._loss, factor)
        return with_gradient(
            self._loss,
            self._inputs,
            lambda scale: [
                None if g is None else g * (scale * factor).to(g.dtype) for g in gradient
            ],
        )


def _is_one(factor: Tensor) -> bool:
    return on_host(factor) and float(factor) == 1


def _scale(loss: Tensor, factor: Tensor) -> Tensor:
    return loss.detach() + factor * (loss - loss.detach())


def _fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What a proof depends on: modules' modes, what is trainable, precision."""
    modules = modules_of(model)
    parameters = tuple((id(p), p.requires_grad, p.dtype, p.device) for p in parameters_of(modules))
    device = parameters[0][3].type if parameters else "cpu"
    return (
        tuple((id(module), module.training) for module in modules),
        parameters,
        torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
    )
