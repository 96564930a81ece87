"""One run of the demonstration: a small network trained on noisy digits by one method.

Both methods start from the same weights and see the same batches in the same order; the only
difference is the weight of each example in the step:

    uniform   1/n each: plain training
    reweigh   by alignment with the clean gradient (core/reweighter.py)

and what it makes of the train labels, averaged over the steps in which an example was seen:

    uniform   suspicion = its mean loss
    reweigh   suspicion = 1 - share of steps in which it had a positive weight
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data import BatchOptions
from ..errors import SettingError, unknown
from ..training import Config, Now, Optimizer, fit
from .digits import CLASSES, Digits

SUSPICION = {"uniform": "mean_loss", "reweigh": "zero_share"}  # columns of the ledger
METHODS = tuple(SUSPICION)
EVALUATIONS = 40  # points on a learning curve
TICK = 10  # steps between signs of life


@dataclass(frozen=True)
class Settings:
    """What all runs share. The defaults were not chosen by test accuracy."""

    steps: int = 2000
    noise: float = 0.4
    batch_size: int = 100
    clean_per_class: int = 5
    learning_rate: float = 0.01
    momentum: float = 0.9
    hidden: int = 256

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SettingError(f"steps is {self.steps}; expected 1 or more")
        if not 0 < self.noise < 1:
            raise SettingError(f"noise is {self.noise}; expected a share between 0 and 1")


@dataclass(frozen=True)
class Outcome:
    """What a run gives: the learning curve, and what became of each train example."""

    curve: list[tuple[int, float]]  # (steps done, test accuracy)
    suspicion: Tensor  # [n]
    seen: Tensor  # [n], times in a batch

    @property
    def test_accuracy(self) -> float:
        """At the end of training: no early stopping, no choice of a best step."""
        return self.curve[-1][1]


def train(
    digits: Digits,
    *,
    method: str,
    seed: int,
    settings: Settings,
    tick: Callable[[int], None] = lambda steps: None,
) -> Outcome:
    """Train one network; `tick(k)` is called whenever k more steps are done."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)

    def progress(now: Now) -> None:
        if now.step % TICK == 0:
            tick(TICK)
        elif now.step == now.steps:
            tick(now.step % TICK)

    outcome = fit(
        lambda: make_model(settings.hidden),
        digits.task(),
        make_config(digits, method=method, seed=seed, settings=settings),
        progress=progress,
    )
    table = outcome.ledger.table()
    suspicion = torch.from_numpy(table[SUSPICION[method]])
    # An example never seen (only in very short runs) is no more suspicious than the average.
    return Outcome(
        [(point["step"], point["test_accuracy"]) for point in outcome.curve],
        suspicion.nan_to_num(nan=float(suspicion.nanmean())),
        torch.from_numpy(table["seen"]),
    )


def make_config(digits: Digits, *, method: str, seed: int, settings: Settings) -> Config:
    """The run's config: every step looks at the whole clean set."""
    return Config(
        method,
        steps=settings.steps,
        seed=seed,
        batch=BatchOptions(
            size=min(settings.batch_size, len(digits.train_labels)),
            clean_size=len(digits.clean_labels),
        ),
        optimizer=Optimizer(
            "sgd", learning_rate=settings.learning_rate, momentum=settings.momentum
        ),
        evaluate_every=max(1, settings.steps // EVALUATIONS),
        probe=0,
    )


def make_model(hidden: int) -> nn.Module:
    """A multi-layer perceptron 64-hidden-hidden-10."""
    return nn.Sequential(
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, CLASSES),
    )
