"""`fit`: a model, a task and a config in, a trained model and what became of every example out.

    phases:  [pretrain] -> main -> [fine_tune]          phases.py
    each:    build -> restore -> run                    loop.py
    then:    judge -> write                             outcome.py, folder.py

Called again with the same folder and config it goes on where it stopped, to the same bits on a CPU;
a finished run is read back.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import AnyTask
from ..errors import Interrupted
from ..methods import Criterion, Weighed, parse
from . import checkpoints
from .config import Config
from .environment import Stop, listening, surroundings, telling_of_lost_processes
from .folder import FINAL, Point, RunFolder, read_model
from .job import Job, load, make_pairs
from .loop import Hooks, run
from .outcome import Outcome, final_metrics, on_the_way
from .phases import FINE_TUNE, MAIN, PRETRAIN, phases
from .problem import ModelFactory, criterion_for, make_seeded
from .progress import Now, Progress
from .stages import Stage, Weights, at_hand, build

HALF_LIFE_EPOCHS = 5.0  # of the ledger's recent weights
POLL = 10  # steps between agreements to stop, where several processes must agree


def fit(
    make_model: ModelFactory,
    task: AnyTask,
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    pretrained: Path | str | Weights | None = None,
    criterion: Criterion | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a model on a task.

    task:       a `data.Task`, or a `data.StreamedTask` whose train part stays in its shards.
    make_model: called without arguments, under the run's seed.
    out:        the run folder (folder.py); None keeps everything in memory.
    pretrained: a plain baseline on the same data for methods that begin with one: a run folder or
                a state dict; without it, it is trained first.
    criterion:  `criterion(outputs, targets) -> Tensor[n]`; by default cross-entropy for outputs
                [n, classes], its binary form for [n], the squared error for real targets.
    progress:   called with a `Now` after every step; `bar()` makes one that shows it.
    """
    config = config or Config()
    parse(config.method)
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
        job = Job(make_model, task, config, criterion, accelerator)
        # In memory there is nothing to save: signals do what they always do.
        asked = listening() if folder is not None else nullcontext(Stop())
        with asked as stop, telling_of_lost_processes(job.processes):
            return _Run(job, folder, stop, progress).run(at_hand(pretrained, config, data))


class _Run:
    """One call of `fit`, from the newest checkpoint if there is one."""

    def __init__(
        self, job: Job, folder: RunFolder | None, stop: Stop, progress: Progress | None
    ) -> None:
        self.job, self.folder, self.stop, self.progress = job, folder, stop, progress
        train = len(job.task.train)
        epoch = train * job.config.accumulate / job.config.batch.size  # in records
        half_life = max(1.0, HALF_LIFE_EPOCHS * epoch)
        self.ledger = Ledger(train, half_life=half_life, device=job.device)
        self.points: list[Point] = []
        self.before = self.total = self.examples = 0
        self.hooks = Hooks(self._evaluate, self._save, self._show, self._stopping)

    def run(self, pretrained: Weights | None) -> Outcome:
        """All phases that are not behind us, then the results."""
        saved = None if self.folder is None else checkpoints.newest(self.folder.checkpoints)
        plan = phases(self.job.config, pretrained=pretrained is not None)
        names = [phase.name for phase in plan]
        if saved is not None and saved["phase"] not in names:
            saved = None  # a baseline was being trained, and is now at hand
        first = names.index(saved["phase"]) if saved is not None else 0
        self.total = sum(phase.schedule.steps for phase in plan)
        self._resume(saved)
        self.before = sum(phase.schedule.steps for phase in plan[:first])
        self._track(0 if saved is None else self.before + int(saved["step"]))
        start: Weights | None = None
        for phase in plan[first:]:
            mine = saved if saved and saved["phase"] == phase.name else None
            if mine and phase.name == MAIN:
                pretrained = mine["pretrained"]
            stage = build(self.job, phase, self.ledger, start=start, pretrained=pretrained)
            if mine:
                stage.load_state_dict(mine)
            self._train(stage)
            if phase.name == PRETRAIN:
                pretrained = _weights(stage.base)
            else:
                start = _weights(stage.base)
            self.before += phase.schedule.steps
        return self._finish(stage.base)

    def _resume(self, saved: checkpoints.State | None) -> None:
        if saved is not None:
            self.points = json.loads(saved["points"])
            self.ledger.load_state_dict(saved["ledger"])
            if not self.job.writes:  # all processes' records are in it: one of them goes on with it
                self.ledger = self.ledger.like()
        if self.folder is not None and self.job.writes:
            self.folder.rewrite(self.points)

    def _train(self, stage: Stage) -> None:
        fresh = stage.pairs.step == 0 and stage.phase.name != FINE_TUNE
        if fresh and self.job.config.evaluate_every:
            self._evaluate(stage, 0)
        run(stage, self.job.config, self.hooks)
        if self.stop.signal and not stage.done:
            raise Interrupted(
                f"stopped at step {self.before + stage.pairs.step} of {self.total}; "
                f"run the same again to go on",
                self.stop.signal,
            )

    def _stopping(self, done: int) -> bool:
        if self.job.processes > 1:
            if done % POLL:
                return False
            asked = torch.tensor(self.stop.signal, device=self.job.device)
            self.stop.signal = int(self.job.accelerator.gather(asked).max())
        return self.stop.signal != 0

    def _evaluate(self, stage: Stage, done: int) -> None:
        job, phase = self.job, stage.phase
        point: Point = {
            "phase": phase.name,
            "step": done,
            "learning_rate": phase.learning_rate(max(0, done - 1)),
            **stage.averages.read(),
            **on_the_way(lambda part: job.judge(stage.base, part), job.task, job.config.probe),
        }
        self.points.append(point)
        if job.config.trackers:
            numbers = {k: v for k, v in point.items() if k not in ("phase", "step")}
            job.accelerator.log(numbers, step=self.before + done)
        if self.folder is not None and job.writes:
            self.folder.append(point)

    def _save(self, stage: Stage, done: int) -> None:
        if self.folder is None:
            return
        ledger = self.job.gathered(self.ledger)
        stage.averages.settle()
        if self.job.writes:
            state = {
                **stage.state_dict(),
                "ledger": ledger.state_dict(),
                "points": json.dumps(self.points),
            }
            folder, keep = self.folder.checkpoints, self.job.config.keep
            checkpoints.save(folder, stage.phase.name, done, state, keep=keep)

    def _show(self, stage: Stage, done: int, weighed: Weighed) -> None:
        if self.progress is not None and self.job.writes:
            self.examples += self.job.config.batch.size
            accuracy = self.points[-1].get("test_accuracy") if self.points else None
            step = self.before + done
            self.progress(Now(stage.phase.name, step, self.total, self.examples, accuracy, weighed))

    def _track(self, step: int) -> None:
        config = self.job.config
        if config.trackers:
            settings = {"method": config.method, "steps": self.total, "seed": config.seed}
            # What an interrupted run logged after its last checkpoint will be logged again.
            again = {"tensorboard": {"purge_step": step + 1}} if step else {}
            self.job.accelerator.init_trackers("trackers", settings, again)

    def _finish(self, base: nn.Module) -> Outcome:
        job = self.job
        metrics = final_metrics(lambda part: job.judge(base, part), job.task)
        ledger = job.gathered(self.ledger)
        base = job.accelerator.unwrap_model(base, keep_fp32_wrapper=False).cpu().eval()
        if self.folder is not None and job.writes:
            points = [*self.points, {FINAL: metrics}]
            self.folder.finish(base.state_dict(), ledger, job.task.train.targets, points)
        job.accelerator.wait_for_everyone()
        return Outcome(metrics, self.points, ledger, base)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _read_back(folder: RunFolder, metrics: dict[str, Any], model: nn.Module) -> Outcome:
    """A finished run, as it was returned when it finished."""
    load(model, read_model(folder.path))
    return Outcome(metrics, folder.points()[:-1], folder.ledger(), model.eval())
