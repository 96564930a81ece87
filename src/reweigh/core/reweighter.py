"""The step: weigh every example of a train batch by how much it helps a clean batch.

score_i  = < grad f_i(theta), grad G(theta) >
weight_i = max(score_i, 0) / sum_j max(score_j, 0)
update   = the user's optimizer on  sum_i weight_i f_i
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .._warn import warn
from .backends import Choice
from .compiled import CompiledRoute, CompileLog, Reference, require_options
from .health import EVAL_MODE, RunHealth, likely_left_in_eval
from .model import Batch, Loss, ModelView, Params, clean_batches, micro_batches
from .processes import Group
from .rule import (
    BatchSummary,
    Rule,
    require_rule,
    summary_of,
    weights_by,
    weights_from_scores,
)
from .safeguard import Safeguard, make_safeguard
from .session import Session, TwoSides
from .step import Step, Window
from .update import ONE, Geometry, LocalUpdate, update_of


class Reweighter:
    """Weigh train batches against clean ones, in your own training loop.

    model, loss: as in `loss(model, batch) -> Tensor[n]`; see `per_example`.
    backend:     "auto" finds the cheapest exact one for the model and proves it on the first batch,
                 and again when the model or its mode changes; `.backend` says which, and why.
    safeguard:   "auto" shortens steps that do not help the next clean batch (safeguard.py); None is
                 the paper's literal rule.
    rule:        from the scores [n] of a batch to its weights [n], none negative; None is the paper's
                 (rule.py). Where processes share a batch it gets the scores of the joined batch.
    params:      align only these parameters, such as "fc": cheaper, approximate (model/parameters.py).
    chunk:       examples in memory at a time, for large batches (backends/chunked.py).
    epsilon:     relative step of the finite_difference back-end.
    geometry:    the optimizer, to measure scores as it steps (update/preconditioner.py); plain by default.
    group:       who shares a batch. "auto": the processes of DistributedDataParallel or fully_shard
                 if the model is in one, nobody if tensor parallelism alone has cut it, all processes
                 if torch.distributed runs, else nobody; each then passes its share, and all call.
                 None: this process trains by itself, or with those it holds the parts of a model with.
    compile:     True, or a dict with `backend`, `mode` or `options` of torch.compile: the whole step as
                 one compiled graph, the same numbers (compiled/). `.compiled` says how often that was
                 done and how long it took; where it cannot be, `.backend.reason` says why.
    one_pass:    both batches in one call of the model; of a window, micro-batches up to the size of the
                 clean batch. None: where that is the same by construction; True: you vouch that no code
                 of yours looks at the batch as a whole; False: never.

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
        rule: Rule | None = None,
        params: Params = None,
        chunk: int | None = None,
        epsilon: float | None = None,
        geometry: Geometry = None,
        group: str | Group | None = "auto",
        one_pass: bool | None = None,
        compile: bool | Mapping[str, Any] = False,
    ) -> None:
        self.model, self.loss = model, loss
        self._session = Session(
            model, loss, backend=backend, params=params, chunk=chunk, epsilon=epsilon,
            geometry=geometry, group=group, one_pass=one_pass,
        )  # fmt: skip
        self._rule = require_rule(rule)
        self._safeguard = make_safeguard(safeguard)
        self._health, self._mode_checked = RunHealth(), False
        first = "not settled yet: the first batch decides" if backend == "auto" else "asked for"
        self.backend = Choice(backend, first)
        self._session.parameters()  # an early error beats one in the first step
        self._route: CompiledRoute | None = None
        if (options := require_options(compile)) is not None:
            closed = self._session.not_compiled() or (
                rule and "a rule of your own is run as written"
            )
            self._route = CompiledRoute(
                self._session.model, loss, self._safeguard, options, reference=self._reference,
                closed=closed or None,
            )  # fmt: skip

    def __call__(self, train: Batch, clean: Batch) -> Step:
        """Weigh `train` against `clean`; call `.loss.backward()` on what comes back."""
        if self._route is not None and (done := self._compiled_step(self._route, train, clean)):
            return done
        return self._step(train, clean)[0]

    def window(self, batches: Iterable[Batch], clean: Batch) -> Window:
        """Weigh the micro-batches of one optimizer step as one batch, in the memory of one of them, or of
        the clean batch if that is larger.

        batches: with the same columns; sizes may differ. One `backward()` on what comes back leaves the
                 gradient of the joined batch, so call `optimizer.step()` next.
        clean:   one batch, or a list of batches with these columns, which are run one by one.

        The clean gradient is computed once. BatchNorm sees each micro-batch as a batch of its own.

        >>> from reweigh import per_example
        >>> weigh = Reweighter(nn.Linear(2, 2), per_example(nn.functional.cross_entropy))
        >>> train = (torch.eye(2), torch.tensor([0, 1]))
        >>> window = weigh.window([train, train, train], clean=train)
        >>> window.backward()
        >>> [len(weights) for weights in window.weights]
        [2, 2, 2]
        """
        train = micro_batches(batches)
        self._session.require_unchunked()
        return Window.of(*self._step(train, clean_batches(clean, train)))

    def _step(self, train: Batch, clean: Batch) -> tuple[Step, Sequence[torch.Size]]:
        """The step; and the shapes of the losses of its micro-batches, if any."""
        steps: list[tuple[Step, Sequence[torch.Size]]] = []

        def weigh() -> Tensor:
            steps.append(self._weigh(train, clean))
            return steps[0][0].loss

        with torch.enable_grad():
            loss = self._session.through_wrapper(weigh)
        step, shapes = steps[0]
        return step if loss is step.loss else replace(step, loss=loss), shapes

    def _compiled_step(self, route: CompiledRoute, train: Batch, clean: Batch) -> Step | None:
        self._check_mode()
        with torch.enable_grad():
            done = route(train, clean)
        if done is None:
            return None
        step, clean_losses, self.backend = done
        self._health.finite(step.losses, clean_losses, step.scores)
        self._health.weights(step.weights)
        return step

    @property
    def compiled(self) -> CompileLog | None:
        """How often a step was compiled, how long that took, and why not; None without compile=."""
        return None if self._route is None else self._route.log

    def _weigh(self, train: Batch, clean: Batch) -> tuple[Step, Sequence[torch.Size]]:
        self._check_mode()
        sides = self._session.both_sides(train, clean, proportional=self._rule is None)
        choice = sides.settled.choice
        self.backend = choice if self._route is None else self._route.explained(choice)
        alignment = sides.settled.alignment
        weights, joined = self._weights(sides)
        self._health.finite(alignment.losses, sides.clean.losses, alignment.scores, joined)
        self._health.weights(weights, joined)
        step = self._stepped(sides, weights, joined, self._update(sides, weights))
        return step, alignment.shapes

    def _reference(self, train: Batch, clean: Batch) -> Reference:
        """The eager step, for a compiled one to be compared with."""
        sides = self._session.both_sides(train, clean, proportional=self._rule is None)
        weights, joined = self._weights(sides)
        update, alignment = self._update(sides, weights), sides.settled.alignment
        return Reference(
            view=sides.view,
            choice=sides.settled.choice,
            losses=alignment.losses,
            scores=alignment.scores,
            clean_loss=sides.clean.mean_loss(),
            direction=sides.clean.direction,
            gradient=update,
            finish=lambda: self._stepped(sides, weights, joined, update),
        )

    def _stepped(
        self, sides: TwoSides, weights: Tensor, joined: BatchSummary | None, update: LocalUpdate
    ) -> Step:
        alignment = sides.settled.alignment
        factor = self._factor(sides, weights, joined, update)
        return Step(
            loss=update.scaled(ONE if factor is None else factor),
            weights=weights,
            scores=alignment.scores,
            losses=alignment.losses,
            clean_loss=sides.clean.mean_loss(),
            factor=weights.new_ones(()) if factor is None else factor,
            joined=joined,
        )

    def _weights(self, sides: TwoSides) -> tuple[Tensor, BatchSummary | None]:
        """The weights of this process's examples; and of the joined batch, in numbers."""
        scores, sums = sides.settled.alignment.scores, sides.settled.sums
        if self._rule is None:
            return weights_from_scores(scores, sums), None if sums is None else sums.summary()
        if sums is None:
            return weights_by(self._rule, scores), None
        all_scores, own = sides.group.joined(scores)
        weights = weights_by(self._rule, all_scores)
        return weights[own], summary_of(weights, all_scores)

    def _update(self, sides: TwoSides, weights: Tensor) -> LocalUpdate:
        """The gradient of the weighted loss, computed when it is asked for."""
        # Gradients are averaged over the processes, and a share is a part of a sum.
        size = sides.group.size
        loss = sides.settled.alignment.weighted(weights * size if size > 1 else weights)
        return update_of(sides.view, loss, sides.clean.direction, sides.group)

    def _factor(
        self, sides: TwoSides, weights: Tensor, joined: BatchSummary | None, update: LocalUpdate
    ) -> Tensor | None:
        """How much of the update the safeguard lets through; None without one."""
        if self._safeguard is None:
            return None
        direction, scores = sides.clean.direction, sides.settled.alignment.scores
        clean_loss, slope = sides.clean.mean_loss(), (weights * scores).sum()
        if joined is not None:
            slope = joined.slope.to(slope)
        metric = sides.metric
        if metric is None:
            return self._safeguard(clean_loss, direction, slope, update)
        return self._safeguard(
            clean_loss,
            metric.rooted(direction),
            slope,
            lambda: metric.rooted_gradient(update()),
        )

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
            if likely_left_in_eval(ModelView(self._session.model)):
                warn(" ".join(EVAL_MODE))
