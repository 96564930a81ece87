"""Learning to reweight examples: ours.

    score_i  = < grad f_i , grad G >                   G: mean loss of the clean batch
    weight_i = max(score_i, 0) / sum_j max(score_j, 0)

Ren, Zeng, Yang, Urtasun: Learning to Reweight Examples for Robust Deep Learning, 2018. See
core/reweighter.py; `reweigh_literal` is the paper's rule without the safeguard of core/safeguard.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core import Loss, Params, Reweighter, Safeguard
from .contract import Method, Problem, View, Weighed, plain_losses


def reweigh(
    problem: Problem,
    *,
    backend: str = "auto",
    safeguard: str | Safeguard | None = "auto",
    params: Params = None,
    chunk: int | None = None,
) -> Method:
    """Examples count by how much a step on them helps the clean batch; options as `Reweighter`'s."""
    options = {"backend": backend, "safeguard": safeguard, "params": params, "chunk": chunk}
    memory = _Reweighing(options)
    return Method(
        "reweigh", losses=plain_losses(problem), weigh=memory.weigh, state={"reweighter": memory}
    )


def reweigh_literal(
    problem: Problem, *, backend: str = "auto", params: Params = None, chunk: int | None = None
) -> Method:
    """The same without a safeguard: the paper to the letter."""
    method = reweigh(problem, backend=backend, safeguard=None, params=params, chunk=chunk)
    return replace(method, name="reweigh_literal")


class _Reweighing:
    """A `Reweighter` that is made when the model is first seen, from the state known by then."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options, self._state = options, dict[str, Any]()
        self._reweighter: Reweighter | None = None

    def weigh(self, view: View, loss: Loss) -> Weighed:
        known = self._reweighter
        if known is None or known.model is not view.model:
            self._state = self.state_dict()
            known = self._reweighter = Reweighter(view.model, loss, **self._options)
            known.load_state_dict(self._state)
        step = known(view.train, view.clean)
        share = step.shared_by / max(1, len(step.weights))  # of the batch that processes share
        return Weighed(step.loss, step.weights * share, step.losses, step.scores, step.clean_loss)

    def state_dict(self) -> dict[str, Any]:
        return self._state if self._reweighter is None else self._reweighter.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = dict(state)
        if self._reweighter is not None:
            self._reweighter.load_state_dict(self._state)
