"""How many steps to train and at which learning rate: the paper's schedules, and your own.

    learning rate at step t = base rate * product of the factors of all drops at or before t

The rate is a pure function of the step, so a checkpoint need not hold a scheduler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import SettingError

Drops = tuple[tuple[int, float], ...]


def require_whole(least: int, **values: int) -> None:
    """Raise unless every value is a whole number from `least` up."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingError(f"{name} is {value!r}; expected a whole number from {least} up")


def require_positive(**values: float) -> None:
    """Raise unless every value is positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise SettingError(f"{name} is {value!r}; expected a positive number")


@dataclass(frozen=True)
class Schedule:
    """A number of steps; at each `(step, factor)` of `drops` the learning rate is multiplied."""

    steps: int
    drops: Drops = ()

    def __post_init__(self) -> None:
        require_whole(1, steps=self.steps)
        for step, factor in self.drops:
            require_whole(0, drop=step)
            require_positive(factor=factor)

    def factor(self, step: int) -> float:
        """The product of all drops up to `step`: the learning rate there over the base rate."""
        return math.prod(factor for at, factor in self.drops if step >= at)

    def scaled(self, steps: int) -> Schedule:
        """The same shape over another number of steps."""
        return Schedule(steps, tuple((at * steps // self.steps, f) for at, f in self.drops))


@dataclass(frozen=True)
class FineTune:
    """Steps on the clean examples for `+ft`; without a rate, the last one of the main phase."""

    steps: int = 500
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        require_whole(1, fine_tune_steps=self.steps)
        if self.learning_rate is not None:
            require_positive(fine_tune_learning_rate=self.learning_rate)


@dataclass(frozen=True)
class PaperSchedule:
    """The fields of a `Config` that a schedule sets: `Config(**vars(schedule))`."""

    steps: int
    drops: Drops = ()
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
