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
from torch.nn import functional

from ..core import Reweighter, per_example
from ..errors import SettingError, unknown
from .digits import CLASSES, Digits

METHODS = ("uniform", "reweigh")
EVALUATIONS = 40  # points on a learning curve
TICK = 10  # steps between signs of life

loss = per_example(functional.cross_entropy)


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
    model = make_model(seed, settings.hidden)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )
    reweigh = Reweighter(model, loss)
    clean = (digits.clean_images, digits.clean_labels)
    n = len(digits.train_labels)
    total, seen = torch.zeros(n), torch.zeros(n)
    every = max(1, settings.steps // EVALUATIONS)
    curve = [(0, accuracy(model, digits))]
    for step, rows in enumerate(batches(n, settings, seed=seed), start=1):
        batch = (digits.train_images[rows], digits.train_labels[rows])
        optimizer.zero_grad()
        if method == "reweigh":
            outcome = reweigh(batch, clean)
            outcome.loss.backward()
            signal = (outcome.weights <= 0).float()
        else:
            losses = loss(model, batch)
            losses.mean().backward()
            signal = losses.detach()
        optimizer.step()
        total.index_add_(0, rows, signal)
        seen.index_add_(0, rows, torch.ones(len(rows)))
        if step % every == 0 or step == settings.steps:
            curve.append((step, accuracy(model, digits)))
        if step % TICK == 0:
            tick(TICK)
    tick(settings.steps % TICK)
    # An example never seen (only in very short runs) is no more suspicious than the average.
    average = total.sum() / seen.sum()
    suspicion = torch.where(seen > 0, total / seen.clamp(min=1), average)
    return Outcome(curve, suspicion, seen)


def make_model(seed: int, hidden: int) -> nn.Module:
    """A multi-layer perceptron 64-hidden-hidden-10, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, CLASSES),
        )


def batches(n: int, settings: Settings, *, seed: int) -> Tensor:
    """The rows of every batch, [steps, batch size]: shuffled passes over the data, end to end."""
    generator = torch.Generator().manual_seed(seed)
    size = min(settings.batch_size, n)
    passes = -(-settings.steps * size // n)
    order = torch.cat([torch.randperm(n, generator=generator) for _ in range(passes)])
    return order[: settings.steps * size].view(settings.steps, size)


def accuracy(model: nn.Module, digits: Digits) -> float:
    """The share of test images classified right."""
    with torch.no_grad():
        predicted = model(digits.test_images).argmax(1)
    return int((predicted == digits.test_labels).sum()) / len(digits.test_labels)
