"""The phases of a run. Each has its own method, schedule and optimizer.

[pretrain]  a plain baseline, for methods that start from one, if none was given
main        the method; with +es on the shorter schedule
[fine_tune] with +ft: the clean examples alone, from the weights at the end of the main phase
"""

from dataclasses import dataclass

from ..methods import METHODS, parse
from .config import Config
from .schedules import Schedule

PRETRAIN, MAIN, FINE_TUNE = "pretrain", "main", "fine_tune"


@dataclass(frozen=True)
class Phase:
    """One phase: its name, method, schedule, the learning rate before any drop, and whether the clean
    batches are learnt from, too."""

    name: str
    method: str
    schedule: Schedule
    base_rate: float
    learn_clean: bool = False

    @property
    def draws(self) -> str:
        """The key of its random numbers. A baseline draws the same as a plain run of its own."""
        return MAIN if self.name == PRETRAIN else self.name

    def learning_rate(self, step: int) -> float:
        """The learning rate at `step`, counted from the beginning of the phase."""
        return self.base_rate * self.schedule.factor(step)


def phases(config: Config, *, pretrained: bool) -> list[Phase]:
    """The phases that `config` asks for; `pretrained`: a baseline was given."""
    plan = parse(config.method)
    schedule = config.stopped if plan.early_stop else config.main
    rate = config.optimizer.learning_rate
    planned = [Phase(MAIN, plan.method, schedule, rate, plan.learn_clean)]
    if METHODS[plan.method].pretrains and not pretrained:
        steps = config.pretrain_steps
        before = config.main if steps is None else config.main.scaled(steps)
        planned.insert(0, Phase(PRETRAIN, "uniform", before, rate))
    if plan.fine_tune:
        tune = config.fine_tune
        last = rate * schedule.factor(schedule.steps)
        planned.append(
            Phase(FINE_TUNE, "clean_only", Schedule(tune.steps), tune.learning_rate or last)
        )
    return planned
