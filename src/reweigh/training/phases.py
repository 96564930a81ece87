"""A run in phases, each with its own method, schedule and optimizer.

[pretrain]  a plain baseline, for methods that begin with one and were given none
main        the method; with +es on the shorter schedule
[fine_tune] with +ft: the clean examples alone, from where the main phase ended
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

from ..methods import METHODS, parse
from .config import Config, FineTune, Schedule

PRETRAIN, MAIN, FINE_TUNE = "pretrain", "main", "fine_tune"


@dataclass(frozen=True)
class Phase:
    """One stretch of training."""

    name: str
    method: str
    schedule: Schedule
    base_rate: float

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


@dataclass(frozen=True)
class PaperSchedule:
    """`Config(**vars(...))`-ready: steps, drops, the +es schedule, and what +ft adds."""

    steps: int
    drops: tuple[tuple[int, float], ...] = ()
    early_stop: Schedule | None = None
    fine_tune: FineTune = field(default_factory=lambda: FineTune(5000))

    def scaled(self, steps: int) -> PaperSchedule:
        """The same shape over fewer steps."""
        share = steps / self.steps
        stop = self.early_stop
        return PaperSchedule(
            steps,
            Schedule(self.steps, self.drops).scaled(steps).drops,
            stop and stop.scaled(max(1, round(stop.steps * share))),
            FineTune(max(1, round(self.fine_tune.steps * share)), self.fine_tune.learning_rate),
        )


_SHORT = Schedule(60_000, ((40_000, 0.1), (50_000, 0.1)))
PAPER = MappingProxyType(
    {
        "mnist": PaperSchedule(8000),
        "resnet32": PaperSchedule(80_000, ((40_000, 0.1), (60_000, 0.1)), early_stop=_SHORT),
        "wrn28-10": PaperSchedule(_SHORT.steps, _SHORT.drops),
    }
)
"""The schedules of Ren et al., 2018, section 4."""
