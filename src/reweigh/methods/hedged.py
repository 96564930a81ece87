"""Reweighing that fades into training without weights where the checked rows cannot be believed.

    d = sum_i w_i grad f_i       w: the weights of `reweigh`
    r = sum_i z_i grad f_i       z: random weights, as of the method `random`
    step = (a u + (1 - a) c) (a d + (1 - a) r),      a = b / (b + c)

u is the safeguard's trust (core/safeguard.py). b and c say how much training with the weights and without them is
believed. Both start at 1/2. Each is judged by clean rows H that had no part in the weights:

    p = mean_i grad f_i:  what r is on average
    D = d + .9 D of the step before,    P = p + .9 P of the step before
    b   grows by 5%, up to 1, where < grad H , D > > 0 at the place that these steps have led to; else falls
    c   the same with P

H is a fifth of the clean rows: every fifth one in the order of their labels, so that each class has its
share. The other four fifths weigh. H changes five times in a run, so that every clean row weighs in four
fifths of it. With k < 5 rows per class it is a k-th: of fewer, some classes would have no judge.

Why: weights follow the clean rows that are asked. If these are few and the task is hard, a model learns
them by heart, and a step that helps them helps nobody else: training without them is ahead. If the errors have a
pattern, training without weights is what hurts. Rows that were not asked can tell the two apart; rows that
were asked cannot. And without the order of the labels, H has more of some classes just where the rows
that weigh have fewer, and judges against them.

Why random weights and not equal ones: with about half of a batch left out by chance, wrong labels are not learnt by
heart in so many steps. Where a network has the time for that, equal weights end far behind random ones.

Why two kinds of trust: u is found by the rows that weigh. Once they are learnt by heart it goes to nothing, and with
one trust for all training would stand still just where it should go on without the weights.

Why past steps, and the place where they have led to: at its beginning nearly every weighed step helps
H. Whether it still helps at its end, with its noise, is the question.

Fewer than 10 clean rows, or than 2 per class, judge nothing: then a = 1, which is `reweigh`.

Cost: that of `reweigh`, one forward and two backwards of the train batch (D, P), and the gradient of H.
Memory: two times the parameters. With dropout, d and p are of masks of their own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core import (
    Batch,
    Loss,
    Params,
    Safeguard,
    eager,
    make_safeguard,
    trainable,
    weights_from_scores,
)
from .contract import Method, Problem, View, Weighed, plain_losses
from .meta_weight_net import evaluate_at
from .random import random_weights
from .reweigh import Reweighing

MOST_TURNS, FEWEST = 5, 10
RATE, LEAST = 0.05, 1e-4  # of the beliefs, as of the safeguard's trust
MEMORY = 0.9  # of past steps


def turns(rows: int, classes: int) -> int:
    """How many parts of the clean rows judge one after the other; 0 if these are too few to judge."""
    per_class = rows // max(1, classes)
    return 0 if rows < FEWEST or per_class < 2 else min(MOST_TURNS, per_class)


def reweigh_hedged(
    problem: Problem,
    *,
    backend: str = "auto",
    safeguard: str | Safeguard | None = "auto",
    params: Params = None,
    chunk: int | None = None,
) -> Method:
    """Ours, mixed with random weights by clean rows that do not weigh; options as of `Reweighter`."""
    beliefs, inner = Beliefs(problem), make_safeguard(safeguard)
    options: dict[str, Any] = {
        "backend": backend, "safeguard": inner and _TwoTrusts(inner, beliefs), "params": params,
        "chunk": chunk, "rule": beliefs.mixed,
    }  # fmt: skip
    hedging = _Hedging(options, problem, beliefs)
    return Method(
        "reweigh_hedged",
        losses=plain_losses(problem),
        weigh=hedging.weigh,
        state={"reweighter": hedging, "beliefs": beliefs},
    )


class Beliefs:
    """b and c, and the past steps D and P that they are judged by.

    State: `weighed` (b), `plain` (c); `steps.weighed.K` and `steps.plain.K` for the K-th parameter.
    """

    def __init__(self, problem: Problem) -> None:
        half = torch.full((), 0.5, device=problem.train_labels.device)
        self._state: dict[str, Tensor] = {"weighed": half, "plain": half.clone()}
        self._problem = problem
        self.judging, self.step = True, 0

    @property
    def share(self) -> Tensor:
        """a: how much of a step follows the weights."""
        weighed, plain = self._state["weighed"], self._state["plain"]
        return weighed / (weighed + plain) if self.judging else torch.ones_like(weighed)

    def mixed(self, scores: Tensor) -> Tensor:
        """The weights [n] of a batch."""
        share = self.share.to(scores)
        chance = random_weights(self._problem, self.step, len(scores)).to(scores)
        return share * weights_from_scores(scores) + (1 - share) * chance

    def trust(self, in_weights: Tensor) -> Tensor:
        """a u + (1 - a) c."""
        share, plain = (x.to(in_weights) for x in (self.share, self._state["plain"]))
        return share * in_weights + (1 - share) * plain

    def judge(self, held: Sequence[Tensor]) -> None:
        """Move both by the gradient `held` of the rows that do not weigh, where D and P have led to."""
        for name in ("weighed", "plain"):
            past = [self._state.get(f"steps.{name}.{k}") for k in range(len(held))]
            products = [(g * d).sum() for g, d in zip(held, past, strict=True) if d is not None]
            if products:
                helps = torch.stack(products).sum().sign().to(self._state[name])
                self._state[name] = (self._state[name] * (RATE * helps).exp()).clamp(LEAST, 1.0)

    def add(self, name: str, gradient: Sequence[Tensor]) -> None:
        """Add a step to those it is judged by."""
        for k, g in enumerate(gradient):
            key = f"steps.{name}.{k}"
            past = self._state.get(key)
            self._state[key] = g.detach() if past is None else MEMORY * past.to(g) + g.detach()

    def state_dict(self) -> dict[str, Tensor]:
        """Two numbers, and two times the parameters."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from it."""
        self._state = {name: value.clone() for name, value in state.items()}


class _TwoTrusts:
    """A safeguard for the weights, and the belief in training without them for the rest."""

    def __init__(self, inner: Safeguard, beliefs: Beliefs) -> None:
        self._inner, self._beliefs = inner, beliefs
        self.state_dict, self.load_state_dict = inner.state_dict, inner.load_state_dict

    def __call__(self, *given: Any) -> Tensor:
        return self._beliefs.trust(self._inner(*given))


class _Hedging(Reweighing):
    """Cuts the clean set into rows that weigh and rows that judge."""

    def __init__(self, options: dict[str, Any], problem: Problem, beliefs: Beliefs) -> None:
        super().__init__(options)
        self._problem, self._beliefs = problem, beliefs
        self._turns = turns(len(problem.clean_labels), problem.classes)
        beliefs.judging = self._turns > 0

    def weigh(self, view: View, loss: Loss) -> Weighed:
        if not self._beliefs.judging:
            return super().weigh(view, loss)
        self._beliefs.step = view.step
        weighing, judging = self._cut(view)
        theta = list(trainable(view.model).values())
        with eager(), torch.enable_grad():
            self._beliefs.judge(_gradient(self._losses(view, loss, judging).mean(), theta))
        step = self.step(view.model, loss, view.train, weighing)
        weights = weights_from_scores(step.scores)
        with eager(), torch.enable_grad():
            losses = self._losses(view, loss, view.train)
            mean = losses.mean()
            self._beliefs.add("weighed", _gradient((weights * losses).sum(), theta, keep=True))
            self._beliefs.add("plain", _gradient(mean, theta))
        # The ledger keeps what the clean rows said: what is added to all says nothing about one.
        return Weighed(step.loss, weights, step.losses, step.scores, step.clean_loss)

    def _losses(self, view: View, loss: Loss, batch: Batch) -> Tensor:
        return evaluate_at(trainable(view.model), view.model, loss, batch)

    def _cut(self, view: View) -> tuple[Batch, Batch]:
        """The clean rows that weigh and those that judge: all, or as many as a clean batch has."""
        inputs, targets = self._problem.clean
        order = torch.argsort(targets, stable=True)
        parts = self._turns
        turn = min(parts - 1, parts * view.step // max(1, self._problem.steps))
        judges = torch.arange(len(order), device=order.device) % parts == turn
        size = len(view.clean[1])
        most = {False: size, True: -(-size // parts)}
        weighing, judging = (
            self._drawn(order[judges == side], most[side], view.step) for side in (False, True)
        )
        return (inputs[weighing], targets[weighing]), (inputs[judging], targets[judging])

    def _drawn(self, rows: Tensor, most: int, step: int) -> Tensor:
        if len(rows) <= most:
            return rows
        draw = torch.randperm(len(rows), generator=self._problem.generator("hedge", step))
        return rows[draw[:most].to(rows.device)]


def _gradient(loss: Tensor, theta: list[nn.Parameter], *, keep: bool = False) -> list[Tensor]:
    found = torch.autograd.grad(
        loss, theta, retain_graph=keep, allow_unused=True, materialize_grads=True
    )
    return list(found)
