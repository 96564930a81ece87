"""The step: weigh every example of a train batch by how much it helps a clean batch.

score_i  = < grad f_i(theta), grad G(theta) >
weight_i = max(score_i, 0) / sum_j max(score_j, 0)
update   = the user's optimizer on  sum_i weight_i f_i
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ReweighWarning, SettingError
from .alignment import Alignment, Memory
from .backends import Choice, choose, require_known, run
from .chunks import require_chunk, run_in_chunks
from .clean import clean_gradient
from .finite_difference import EPSILON
from .graph import leaves, with_gradient
from .isolation import eager
from .loss import Batch, Loss, require_same_device
from .parameters import Direction, Params, select
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

    >>> model = nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> from .loss import per_example
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
    ) -> None:
        require_chunk(chunk)
        if epsilon is not None and not epsilon > 0:
            raise SettingError(f"epsilon={epsilon!r}; expected a positive relative step, or None")
        self.model, self.loss = model, loss
        self._asked = require_known(backend)
        self._safeguard = make_safeguard(safeguard)
        self._params, self._chunk, self._epsilon = params, chunk, epsilon
        self._known: dict[Any, tuple[Choice, Memory]] = {}
        self._watch = Watch()
        self._mode_checked = False
        first = "not settled yet: the first batch decides" if backend == "auto" else "asked for"
        self.backend = Choice(backend, first)
        select(model, params)  # an early error beats one in the first step

    def __call__(self, train: Batch, clean: Batch) -> Step:
        """Weigh `train` against `clean`; call `.loss.backward()` on what comes back."""
        self._check_mode()
        require_same_device(train, clean)
        with eager():
            clean_losses, direction = clean_gradient(
                self.model, self.loss, clean, parameters=select(self.model, self._params)
            )
            alignment = self._align(train, direction)
        weights = weights_from_scores(alignment.scores)
        self._watch.finite(alignment.losses, clean_losses, alignment.scores)
        self._watch.weights(weights)
        loss, factor = self._guarded(alignment, weights, direction)
        return Step(
            loss=loss,
            weights=weights,
            scores=alignment.scores,
            losses=alignment.losses,
            clean_loss=clean_losses.mean(),
            factor=factor,
        )

    def _align(self, train: Batch, direction: Direction) -> Alignment:
        """Use what is known about the model in its present mode, or find out."""
        key = _fingerprint(self.model)
        choice, memory = self._known.get(key, (Choice(self._asked, ""), {EPSILON: self._epsilon}))
        arguments = (self.model, self.loss, train, direction, memory)
        if self._chunk is not None:
            choice, alignment = run_in_chunks(choice, *arguments, chunk=self._chunk)
        elif choice == "auto":
            choice, alignment = choose(*arguments)
        else:
            alignment = run(choice, *arguments)
        if key not in self._known:
            self._known[key] = (choice, memory)
        if self._asked == "auto":
            self.backend = choice
        return alignment

    def _guarded(
        self, alignment: Alignment, weights: Tensor, direction: Direction
    ) -> tuple[Tensor, Tensor]:
        """The loss to train on, with the safeguard's factor on its gradient."""
        loss = alignment.weighted(weights)
        if self._safeguard is None:
            return loss, torch.ones_like(loss.detach())
        inputs = leaves(loss)
        gradient = torch.autograd.grad(loss, inputs, allow_unused=True)
        found = {id(x): g for x, g in zip(inputs, gradient, strict=True)}
        factor = self._safeguard(
            [found.get(id(p)) for p in direction.parameters],
            direction,
            (weights * alignment.scores).sum(),
        )
        return (
            with_gradient(
                loss,
                inputs,
                lambda scale: [None if g is None else g * (scale * factor) for g in gradient],
            ),
            factor,
        )

    def _check_mode(self) -> None:
        if not self._mode_checked:
            self._mode_checked = True
            if likely_left_in_eval(self.model):
                warnings.warn(f"{EVAL_MODE.message} {EVAL_MODE.fix}", ReweighWarning, stacklevel=3)


def _fingerprint(model: nn.Module) -> tuple[Any, ...]:
    """What a proof depends on: modules' modes, what is trainable, precision."""
    parameters = tuple((id(p), p.requires_grad, p.dtype, p.device) for p in model.parameters())
    device = parameters[0][3].type if parameters else "cpu"
    return (
        tuple(module.training for module in model.modules()),
        parameters,
        torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
    )
