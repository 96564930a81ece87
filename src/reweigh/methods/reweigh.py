"""Learning to reweight examples: the method of this library.

    score_i  = < grad f_i , grad G >                   G: mean loss of the clean batch
    weight_i = max(score_i, 0) / sum_j max(score_j, 0)

Ren, Zeng, Yang, Urtasun: Learning to Reweight Examples for Robust Deep Learning, 2018. See
core/reweighter.py; `reweigh_literal` is the paper's rule without the safeguard of core/safeguard.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..core import Batch, Loss, Params, Reweighter, Safeguard, Step
from .contract import Method, Problem, View, Weighed, plain_losses


def reweigh(
    problem: Problem,
    *,
    backend: str = "auto",
    safeguard: str | Safeguard | None = "auto",
    params: Params = None,
    chunk: int | None = None,
) -> Method:
    """Weights by how much a step on an example helps the clean batch; options as of `Reweighter`."""
    options = {"backend": backend, "safeguard": safeguard, "params": params, "chunk": chunk}
    reweighing = Reweighing(options)
    return Method(
        "reweigh",
        losses=plain_losses(problem),
        weigh=reweighing.weigh,
        window=None if chunk else reweighing.window,
        state={"reweighter": reweighing},
    )


def reweigh_literal(
    problem: Problem, *, backend: str = "auto", params: Params = None, chunk: int | None = None
) -> Method:
    """The same without a safeguard: exactly the paper's rule."""
    method = reweigh(problem, backend=backend, safeguard=None, params=params, chunk=chunk)
    return replace(method, name="reweigh_literal")


class Reweighing:
    """A `Reweighter` that is made at the first step, when the model is known, from the saved state."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options, self._state = options, dict[str, Any]()
        self._reweighter: Reweighter | None = None

    def step(self, model: nn.Module, loss: Loss, train: Batch, clean: Batch) -> Step:
        """One step of the `Reweighter` of this model."""
        return self._made(model, loss)(train, clean)

    def _made(self, model: nn.Module, loss: Loss) -> Reweighter:
        weigh = self._reweighter
        if weigh is None or weigh.model is not model:
            self._state = self.state_dict()
            weigh = self._reweighter = Reweighter(model, loss, **self._options)
            weigh.load_state_dict(self._state)
        return weigh

    def weigh(self, view: View, loss: Loss) -> Weighed:
        """The `weigh` hook."""
        return _weighed(self.step(view.model, loss, view.train, view.clean))

    def window(self, views: Sequence[View], loss: Loss) -> Weighed:
        """The `window` hook: all pieces are weighed as one batch."""
        first = views[0]
        window = self._made(first.model, loss).window([v.train for v in views], first.clean)
        return _weighed(window.step)

    def state_dict(self) -> dict[str, Any]:
        """What the safeguard has learnt."""
        return self._state if self._reweighter is None else self._reweighter.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._state = dict(state)
        if self._reweighter is not None:
            self._reweighter.load_state_dict(self._state)


def _weighed(step: Step) -> Weighed:
    # If processes share the batch, the weights sum to one over all of it; see `Weighed`.
    size = step.shared_by / max(1, len(step.weights))
    return Weighed(step.loss, step.weights * size, step.losses, step.scores, step.clean_loss)
