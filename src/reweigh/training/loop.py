"""One phase, from any step to its end.

for each pair: seed -> step -> check -> count -> [evaluate] -> [save] -> [stop]
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import NonFiniteError
from ..methods import Weighed
from .config import Config
from .divergence import DivergenceCheck
from .environment import seed_step
from .running_phase import RunningPhase


@dataclass(frozen=True)
class Hooks:
    """What a run does besides training; every hook is told the steps done in the phase.

    `evaluate` and `save` are called when they are due, in that order; `show` after every step;
    `stopping` says whether to save and leave; so does `settled`, after an evaluation.
    """

    evaluate: Callable[[RunningPhase, int], None]
    save: Callable[[RunningPhase, int], None]
    show: Callable[[RunningPhase, int, Weighed], None]
    stopping: Callable[[int], bool]
    settled: Callable[[RunningPhase], bool]


def run(running: RunningPhase, config: Config, hooks: Hooks) -> None:
    """Train to the end of the phase, or until `stopping`."""
    phase, trainer, accelerator = running.phase, running.trainer, running.trainer.accelerator
    rank, device = accelerator.process_index, accelerator.device
    steps = phase.schedule.steps
    check = DivergenceCheck(running.pairs.pair, device, phase.learning_rate)
    trainer.model.train()
    for pair in running.pairs.until(steps):
        step, done = running.pairs.step - 1, running.pairs.step
        seed_step(config.seed, phase.draws, step, rank=rank, device=device)
        try:
            pieces = trainer.step(pair, step=step, learning_rate=phase.learning_rate(step))
        except NonFiniteError as error:
            raise check.error(step) from error
        check.after(step, pieces)
        if running.average is not None:
            running.average.add(running.base)
        running.averages.add(pieces)
        hooks.show(running, done, pieces[-1])
        stopping = hooks.stopping(done)
        evaluating = done == steps or _due(done, config.evaluate_every)
        saving = done == steps or stopping or _due(done, config.checkpoint_every)
        if evaluating or saving:
            check.parameters(trainer.model, step)
        if evaluating:
            hooks.evaluate(running, done)
        settled = evaluating and hooks.settled(running)
        if saving or settled:
            hooks.save(running, done)
        if stopping or settled:
            return


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0
