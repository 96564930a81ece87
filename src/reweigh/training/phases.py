"""A run in phases, each with its own method, schedule and optimizer.

[pretrain]  a plain baseline, for methods that begin with one and were given none
main        the method; with +es on the shorter schedule
[fine_tune] with +ft: the clean examples alone, from where the main phase ended
"""

from __future__ import annotations

from dataclasses import dataclass

from ..methods import METHODS, parse
from .config import Config
from .schedules import Schedule

PRETRAIN, MAIN, FINE_TUNE = "pretrain", "main", "fine_tune"


@dataclass(frozen=True)
class Phase:
    """One stretch of training."""

    name: str
    method: str
    schedule: Schedule
    base_rate: float

    @property
    def draws(self) -> str:
        """What its random numbers are keyed by: a baseline's are those of a run of its own."""
        return MAIN if self.name == PRETRAIN else self.name

    def learning_rate(self, step: int) -> float:
        """At `step`, counted from the beginning of the phase."""
        return self.base_rate * self.schedule.factor(step)


def phases(config: Config, *, pretrained: bool) -> list[Phase]:
    """What `config` runs through; `pretrained`: the baseline is at hand."""
    plan = parse(config.method)
    schedule = config.stopped if plan.early_stop else config.main
    rate = config.optimizer.learning_rate
    found = [Phase(MAIN, plan.method, schedule, rate)]
    if METHODS[plan.method].pretrains and not pretrained:
        steps = config.pretrain_steps
        before = config.main if steps is None else config.main.scaled(steps)
        found.insert(0, Phase(PRETRAIN, "uniform", before, rate))
    if plan.fine_tune:
        tune = config.fine_tune
        last = rate * schedule.factor(schedule.steps)
        found.append(
            Phase(FINE_TUNE, "clean_only", Schedule(tune.steps), tune.learning_rate or last)
        )
    return found
