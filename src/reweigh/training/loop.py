"""One phase, from any step to its end.

for each pair: seed -> step -> watch -> count -> [evaluate] -> [save] -> [stop]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import NonFiniteError
from ..methods import Weighed
from .config import Config
from .divergence import Watch
from .environment import seed_step
from .stages import Stage


@dataclass(frozen=True)
class Hooks:
    """What a run does besides training; all are told the steps done in the phase.

    `evaluate` and `save` are called when they are due, in that order; `show` after every step;
    `stopping` says whether to save and leave.
    """

    evaluate: Callable[[Stage, int], None]
    save: Callable[[Stage, int], None]
    show: Callable[[Stage, int, Weighed], None]
    stopping: Callable[[int], bool]


def run(stage: Stage, config: Config, hooks: Hooks) -> None:
    """Train to the end of the phase, or until `stopping`."""
    phase, trainer, accelerator = stage.phase, stage.trainer, stage.trainer.accelerator
    rank, device = accelerator.process_index, accelerator.device
    steps = phase.schedule.steps
    watch = Watch(stage.pairs.pair, device, phase.learning_rate)
    trainer.model.train()
    for pair in stage.pairs.until(steps):
        step, done = stage.pairs.step - 1, stage.pairs.step
        seed_step(config.seed, phase.draws, step, rank=rank, device=device)
        try:
            pieces = trainer.step(pair, step=step, learning_rate=phase.learning_rate(step))
        except NonFiniteError as error:
            raise watch.error(step) from error
        watch.after(step, pieces)
        stage.averages.add(pieces)
        hooks.show(stage, done, pieces[-1])
        stopping = hooks.stopping(done)
        evaluating = done == steps or _due(done, config.evaluate_every)
        saving = done == steps or stopping or _due(done, config.checkpoint_every)
        if evaluating or saving:
            watch.parameters(trainer.model, step)
        if evaluating:
            hooks.evaluate(stage, done)
        if saving:
            hooks.save(stage, done)
        if stopping:
            return


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0
