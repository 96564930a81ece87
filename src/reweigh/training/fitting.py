"""`fit`: from a model, a task and a config to a trained model and the ledger of its examples.

    phases:  [pretrain] -> main -> [fine_tune]          phases.py
    each:    build -> restore -> run                    running_phase.py, loop.py
    then:    judge -> write                             run_metrics.py, run_folder.py

Called again with the same folder and config, `fit` continues where it stopped, to the same bits on a
CPU. A finished run is read back.
"""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import AnyTask
from ..errors import Interrupted, SettingError
from ..methods import Criterion, Weighed, parse
from ..runs import FINAL
from . import checkpoints
from .best_weights import BestWeights
from .config import Config
from .criteria import criterion_for
from .environment import Stop, listening, surroundings, telling_of_lost_processes
from .evaluation import Observer
from .loop import Hooks, run
from .phases import FINE_TUNE, MAIN, PRETRAIN, phases
from .progress import Now, Progress
from .run_context import ModelFactory, RunContext, load, make_pairs, make_seeded
from .run_folder import Point, RunFolder, read_model
from .run_metrics import Outcome, curve_metrics, final_metrics
from .running_phase import RunningPhase, Weights, baseline_weights, build

HALF_LIFE_EPOCHS = 5.0  # of the ledger's `average_weight`
POLL = 10  # several processes agree on stopping every so many steps


def fit(
    make_model: ModelFactory,
    task: AnyTask,
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    pretrained: Path | str | Weights | None = None,
    criterion: Criterion | None = None,
    progress: Progress | None = None,
    observe: Mapping[str, Observer] | None = None,
) -> Outcome:
    """Train a model on a task.

    task:       a `data.Task`, or a `data.StreamedTask` whose train part stays in its shards.
    make_model: called without arguments, under the run's seed.
    out:        the run folder (run_folder.py); None keeps everything in memory.
    pretrained: a plain baseline on the same data, for methods that start from one: a run folder or
                a state dict. Without it, the baseline is trained first.
    criterion:  `criterion(outputs, targets) -> Tensor[n]`; by default cross-entropy for outputs
                [n, classes], its binary form for [n], the squared error for real targets.
    progress:   called with a `Now` after every step; `bar()` makes one that shows it.
    observe:    by part ("train", "test"): called with the final model's outputs on it, batch by batch
                in order. Not called for a run that is read back, nor where processes share a part.
    """
    config = config or Config()
    parse(config.method)
    if config.patience is not None and not len(task.hyper_validation):
        raise SettingError(
            "patience asks for early stopping, and the task has no hyper-validation part to go by"
        )
    data = str(make_pairs(task, config.seed, config.batch).state_dict()["fingerprint"])
    path = None if out is None else Path(out)
    with surroundings(config, path) as accelerator:
        folder = None
        if path is not None:
            with accelerator.main_process_first():
                folder = RunFolder.open(path, config, data, sweeps=accelerator.is_main_process)
        model = make_seeded(make_model, config.seed)
        if folder is not None and (final := folder.final()) is not None:
            return _read_back(folder, final, model)
        criterion = criterion or criterion_for(model, task, config.batch)
        context = RunContext(make_model, task, config, criterion, accelerator)
        # Without a folder there is nothing to save, so signals keep their usual effect.
        signals = listening() if folder is not None else nullcontext(Stop())
        with signals as stop, telling_of_lost_processes(context.processes):
            baseline = baseline_weights(pretrained, config, data)
            return _Run(context, folder, stop, progress, observe or {}).run(baseline)


class _Run:
    """One call of `fit`, from the newest checkpoint if there is one.

    points    the evaluations so far;  examples  trained on by this call
    before    steps of the phases that are done;  total  steps of all phases
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder | None,
        stop: Stop,
        progress: Progress | None,
        observe: Mapping[str, Observer],
    ) -> None:
        self.context, self.folder, self.stop, self.progress = context, folder, stop, progress
        self.observe = observe
        train = len(context.task.train)
        epoch = train * context.config.accumulate / context.config.batch.size  # ledger records
        half_life = max(1.0, HALF_LIFE_EPOCHS * epoch)
        self.ledger = Ledger(train, half_life=half_life, device=context.device)
        self.points: list[Point] = []
        self.before = self.total = self.examples = 0
        patience = context.config.patience
        self.best = None if patience is None else BestWeights(patience)
        self.hooks = Hooks(
            self._evaluate, self._save, self._show, self._stopping, self._settled
        )  # fmt: skip

    def run(self, pretrained: Weights | None) -> Outcome:
        """Train all phases that are not done yet, then judge and write the results."""
        saved = None if self.folder is None else checkpoints.newest(self.folder.checkpoints)
        plan = phases(self.context.config, pretrained=pretrained is not None)
        names = [phase.name for phase in plan]
        if saved is not None and saved["phase"] not in names:
            saved = None  # it was saved while training a baseline, which is now given
        first = names.index(saved["phase"]) if saved is not None else 0
        self.total = sum(phase.schedule.steps for phase in plan)
        self._resume(saved)
        self.before = sum(phase.schedule.steps for phase in plan[:first])
        self._track(0 if saved is None else self.before + int(saved["step"]))
        start: Weights | None = None
        for phase in plan[first:]:
            resumed = saved if saved and saved["phase"] == phase.name else None
            if resumed and phase.name == MAIN:
                pretrained = resumed["pretrained"]
            running = build(self.context, phase, self.ledger, start=start, pretrained=pretrained)
            if resumed:
                running.load_state_dict(resumed)
            self._train(running)
            if phase.name == MAIN and self.best is not None:
                self.best.restore(running.judged)
            if phase.name == PRETRAIN:
                pretrained = _weights(running.judged)
            else:
                start = _weights(running.judged)
            self.before += phase.schedule.steps
        return self._finish(running.judged)

    def _resume(self, saved: checkpoints.State | None) -> None:
        """Take over points and ledger; evaluations after the checkpoint leave the metrics file."""
        if saved is not None:
            self.points = json.loads(saved["points"])
            if self.best is not None:
                self.best.load_state_dict(saved["best"])
            self.ledger.load_state_dict(saved["ledger"])
            if not self.context.writes:  # it holds all processes' records: only one continues it
                self.ledger = self.ledger.like()
        if self.folder is not None and self.context.writes:
            self.folder.rewrite(self.points)

    def _train(self, running: RunningPhase) -> None:
        fresh = running.pairs.step == 0 and running.phase.name != FINE_TUNE
        if fresh and self.context.config.evaluate_every:
            self._evaluate(running, 0)
        if self._settled(running):  # it was stopped after the checkpoint of its last step
            return
        run(running, self.context.config, self.hooks)
        if self.stop.signal and not running.done and not self._settled(running):
            raise Interrupted(
                f"stopped at step {self.before + running.pairs.step} of {self.total}; "
                f"run the same again to go on",
                self.stop.signal,
            )

    def _stopping(self, done: int) -> bool:
        """Whether to stop; if one of several processes got a signal, all stop at the same step."""
        if self.context.processes > 1:
            if done % POLL:
                return False
            own = torch.tensor(self.stop.signal, device=self.context.device)
            self.stop.signal = int(self.context.accelerator.gather(own).max())
        return self.stop.signal != 0

    def _settled(self, running: RunningPhase) -> bool:
        """Whether early stopping ends this phase."""
        return self.best is not None and running.phase.name == MAIN and self.best.settled

    def _evaluate(self, running: RunningPhase, done: int) -> None:
        context, phase = self.context, running.phase
        point: Point = {
            "phase": phase.name,
            "step": done,
            "learning_rate": phase.learning_rate(max(0, done - 1)),
            **running.averages.read(),
            **curve_metrics(
                lambda _, part: context.judge(running.judged, part),
                context.task,
                context.config.probe,
            ),
        }
        self.points.append(point)
        if self.best is not None and phase.name == MAIN and done:
            self.best.look(point["hyper_loss"], done, running.judged)
        if context.config.trackers:
            numbers = {k: v for k, v in point.items() if k not in ("phase", "step")}
            context.accelerator.log(numbers, step=self.before + done)
        if self.folder is not None and context.writes:
            self.folder.append(point)

    def _save(self, running: RunningPhase, done: int) -> None:
        if self.folder is None:
            return
        ledger = self.context.gathered(self.ledger)
        running.averages.settle()
        if self.context.writes:
            state = {
                **running.state_dict(),
                "ledger": ledger.state_dict(),
                "points": json.dumps(self.points),
                **({} if self.best is None else {"best": self.best.state_dict()}),
            }
            folder, keep = self.folder.checkpoints, self.context.config.keep
            checkpoints.save(folder, running.phase.name, done, state, keep=keep)

    def _show(self, running: RunningPhase, done: int, weighed: Weighed) -> None:
        if self.progress is not None and self.context.writes:
            self.examples += self.context.config.batch.size
            accuracy = self.points[-1].get("test_accuracy") if self.points else None
            step = self.before + done
            self.progress(
                Now(running.phase.name, step, self.total, self.examples, accuracy, weighed)
            )

    def _track(self, step: int) -> None:
        """Start the trackers, which continue after `step`."""
        config = self.context.config
        if config.trackers:
            settings = {"method": config.method, "steps": self.total, "seed": config.seed}
            # An interrupted run logs the steps after its last checkpoint once more.
            again = {"tensorboard": {"purge_step": step + 1}} if step else {}
            self.context.accelerator.init_trackers("trackers", settings, again)

    def _finish(self, base: nn.Module) -> Outcome:
        context = self.context
        metrics = final_metrics(
            lambda name, part: context.judge(base, part, self.observe.get(name)), context.task
        )
        ledger = context.gathered(self.ledger)
        base = context.accelerator.unwrap_model(base, keep_fp32_wrapper=False).cpu().eval()
        if self.folder is not None and context.writes:
            points = [*self.points, {FINAL: metrics}]
            self.folder.finish(base.state_dict(), ledger, context.task.train.targets, points)
        context.accelerator.wait_for_everyone()
        return Outcome(metrics, self.points, ledger, base)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _read_back(folder: RunFolder, metrics: dict[str, Any], model: nn.Module) -> Outcome:
    """A finished run, as it was returned when it finished."""
    load(model, read_model(folder.path))
    return Outcome(metrics, folder.points()[:-1], folder.ledger(), model.eval())
