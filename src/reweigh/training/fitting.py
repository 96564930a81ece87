"""`fit`: a model, a task and a config in, a trained model and what became of every example out.

    phases:  [pretrain] -> main -> [fine_tune]          phases.py
    each:    build -> restore -> run                    loop.py
    then:    judge -> write                             outcome.py, folder.py

Called again with the same folder and config it goes on where it stopped, to the same bits on a CPU;
a finished run is read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import PairedBatches, Task
from ..data.extras import optional
from ..errors import Interrupted, SettingError
from ..methods import Criterion, Weighed, make, parse
from . import checkpoints
from .config import Config
from .environment import Stop, listening, surroundings
from .evaluation import judge
from .folder import FINAL, Point, RunFolder, read_config, read_model
from .loop import Averages, Stage, run
from .optimizers import make_optimizer
from .outcome import Outcome, final_metrics, on_the_way
from .phases import FINE_TUNE, MAIN, PRETRAIN, Phase, phases
from .problem import ModelFactory, classes_of, criterion_for, describe, make_seeded
from .progress import Now, Progress
from .step import Trainer

Pretrained = Path | str | Mapping[str, Tensor]
HALF_LIFE_EPOCHS = 5.0  # of the ledger's recent weights
POLL = 10  # steps between agreements to stop, where several processes must agree


def fit(
    make_model: ModelFactory,
    task: Task,
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    pretrained: Pretrained | None = None,
    criterion: Criterion | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train a model on a task.

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
    fingerprint = str(_pairs(task, config, config.batch).state_dict()["fingerprint"])
    folder = None if out is None else RunFolder.open(Path(out), config, fingerprint)
    with surroundings(config, None if folder is None else folder.path) as accelerator:
        model = make_seeded(make_model, config.seed)
        criterion = criterion or criterion_for(model, task, config.batch)
        if folder is not None and (final := folder.final()) is not None:
            return _read_back(folder, final, model, task)
        with listening() as stop:
            state = _Run(make_model, task, config, criterion, accelerator, folder, stop, progress)
            return state.run(_baseline(pretrained, config, fingerprint))


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        make_model: ModelFactory,
        task: Task,
        config: Config,
        criterion: Criterion,
        accelerator: Any,
        folder: RunFolder | None,
        stop: Stop,
        progress: Progress | None,
    ) -> None:
        self.make_model, self.task, self.config = make_model, task, config
        self.criterion, self.accelerator = criterion, accelerator
        self.folder, self.stop, self.progress = folder, stop, progress
        self.ledger = Ledger(
            len(task.train),
            half_life=max(1.0, HALF_LIFE_EPOCHS * len(task.train) / config.batch.size),
            device=accelerator.device,
        )
        self.points: list[Point] = []
        self.examples = 0

    def run(self, pretrained: Mapping[str, Tensor] | None) -> Outcome:
        """All phases, from the newest checkpoint if there is one."""
        saved = None if self.folder is None else checkpoints.newest(self.folder.checkpoints)
        plan = phases(self.config, pretrained=pretrained is not None)
        self.all_phases = phases(self.config, pretrained=False)
        self.total = sum(phase.schedule.steps for phase in plan)
        self.before = 0
        self._resume(saved)
        self._track(saved)
        base: Mapping[str, Tensor] | None = None
        for phase in plan:
            if saved is not None and self._order(phase.name) < self._order(saved["phase"]):
                self.before += phase.schedule.steps
                continue
            mine = saved if saved is not None and saved["phase"] == phase.name else None
            if mine is not None and phase.name == MAIN:
                pretrained = mine["pretrained"]
            stage = self._stage(phase, base, pretrained)
            if mine is not None:
                stage.load_state_dict(mine)
            self._train(stage)
            base = _copy(stage.base)
            if phase.name == PRETRAIN:
                pretrained, base = base, None
            self.before += phase.schedule.steps
        return self._finish(stage.base)

    def _resume(self, saved: dict[str, Any] | None) -> None:
        if self.folder is None:
            return
        if saved is not None:
            self.points = json.loads(saved["points"])
            if self.accelerator.is_main_process:
                self.ledger.load_state_dict(saved["ledger"])
        if self.accelerator.is_main_process:
            self.folder.rewrite(self.points)

    def _track(self, saved: dict[str, Any] | None) -> None:
        if self.config.trackers:
            settings = {"method": self.config.method, "steps": self.total, "seed": self.config.seed}
            self.accelerator.init_trackers("trackers", settings)

    def _order(self, name: str) -> int:
        return [phase.name for phase in self.all_phases].index(name)

    def _stage(
        self,
        phase: Phase,
        start: Mapping[str, Tensor] | None,
        pretrained: Mapping[str, Tensor] | None,
    ) -> Stage:
        """A phase at its beginning: a fresh model, or in fine-tuning the one just trained."""
        device = self.accelerator.device
        base = make_seeded(self.make_model, self.config.seed)
        if start is not None:
            base.load_state_dict(dict(start))
        base.to(device)
        baseline, confusion = self._pretrained(phase, pretrained)
        problem = describe(
            self.task,
            self.criterion,
            options=self.config.batch,
            steps=phase.schedule.steps,
            seed=self.config.seed,
            device=device,
            pretrained=baseline,
            confusion=confusion,
        )
        options = self.config.options if phase.name == MAIN else {}
        method = make(phase.method, problem, **options)
        model = base if method.wrap is None else method.wrap(base).to(device)
        optimizer = make_optimizer(self.config.optimizer, model, phase.base_rate)
        model, optimizer = self.accelerator.prepare(model, optimizer)
        trainer = Trainer(
            self.accelerator,
            model,
            optimizer,
            method,
            self.ledger if phase.name == MAIN and method.sample.source == "train" else None,
            accumulate=self.config.accumulate,
            clip=self.config.clip,
        )
        source = replace(self.task, train=self.task.clean) if method.sample.source == "clean" else self.task  # fmt: skip
        batch = replace(
            self.config.batch,
            balanced=self.config.batch.balanced or method.sample.balanced,
            rank=self.accelerator.process_index,
            world=self.accelerator.num_processes,
        )
        return Stage(
            phase,
            trainer,
            method,
            base,
            _pairs(source, self.config, batch, device),
            Averages(device),
            None if pretrained is None or phase.name != MAIN else dict(pretrained),
        )

    def _pretrained(
        self, phase: Phase, state: Mapping[str, Tensor] | None
    ) -> tuple[nn.Module | None, Tensor | None]:
        if phase.name != MAIN or state is None:
            return None, None
        model = make_seeded(self.make_model, self.config.seed)
        model.load_state_dict(dict(state))
        model.to(self.accelerator.device).eval().requires_grad_(False)
        if not classes_of(self.task):
            return model, None
        given, _ = self._judge(model, self.task.train)
        return model, given.confusion.T.to(self.accelerator.device)

    def _train(self, stage: Stage) -> None:
        if stage.pairs.step == 0 and self.config.evaluate_every and stage.phase.name != FINE_TUNE:
            self._evaluate(stage, 0)
        run(
            stage,
            self.config,
            evaluate=lambda done: self._evaluate(stage, done),
            save=lambda done: self._save(stage, done),
            pause=self._pause,
            show=lambda done, weighed: self._show(stage, done, weighed),
        )
        if self.stop.signal and stage.pairs.step < stage.phase.schedule.steps:
            where = f"step {self.before + stage.pairs.step} of {self.total}"
            kept = "run the same again to go on" if self.folder else "nothing was kept: no folder"
            raise Interrupted(f"stopped at {where}; {kept}", self.stop.signal)

    def _pause(self, done: int) -> bool:
        if self.accelerator.num_processes == 1:
            return bool(self.stop.signal)
        if done % POLL:
            return False
        asked = torch.tensor(self.stop.signal, device=self.accelerator.device)
        self.stop.signal = int(self.accelerator.gather(asked).max())
        return bool(self.stop.signal)

    def _judge(self, model: nn.Module, part: Any) -> Any:
        return judge(
            model,
            part,
            self.criterion,
            classes=classes_of(self.task),
            options=self.config.batch,
            device=self.accelerator.device,
            accelerator=self.accelerator,
        )

    def _evaluate(self, stage: Stage, done: int) -> None:
        point: Point = {
            "phase": stage.phase.name,
            "step": done,
            "learning_rate": stage.phase.learning_rate(max(0, done - 1)),
            **stage.averages.read(),
            **on_the_way(lambda part: self._judge(stage.base, part), self.task, self.config.probe),
        }
        self.points.append(point)
        if self.config.trackers:
            numbers = {k: v for k, v in point.items() if isinstance(v, (int, float))}
            self.accelerator.log(numbers, step=self.before + done)
        if self.folder is not None and self.accelerator.is_main_process:
            self.folder.append(point)

    def _save(self, stage: Stage, done: int) -> None:
        if self.folder is None:
            return
        ledger = gathered(self.ledger, self.accelerator)
        if self.accelerator.is_main_process:
            state = {
                **stage.state_dict(),
                "ledger": ledger.state_dict(),
                "points": json.dumps(self.points),
            }
            order = self._order(stage.phase.name)
            checkpoints.save(
                self.folder.checkpoints, order, stage.phase.name, done, state, keep=self.config.keep
            )

    def _show(self, stage: Stage, done: int, weighed: Weighed) -> None:
        self.examples += self.config.batch.size
        if self.progress is not None and self.accelerator.is_main_process:
            accuracy = self.points[-1].get("test_accuracy") if self.points else None
            self.progress(
                Now(
                    stage.phase.name,
                    self.before + done,
                    self.total,
                    self.examples,
                    accuracy,
                    weighed,
                )
            )

    def _finish(self, base: nn.Module) -> Outcome:
        metrics = final_metrics(lambda part: self._judge(base, part), self.task)
        ledger = gathered(self.ledger, self.accelerator)
        base = self.accelerator.unwrap_model(base, keep_fp32_wrapper=False)
        if self.folder is not None and self.accelerator.is_main_process:
            self.folder.finish(
                base.state_dict(), ledger, self.task.train.targets, [*self.points, {FINAL: metrics}]
            )
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()
        return Outcome(metrics, self.points, ledger, base.cpu().eval())


def gathered(ledger: Ledger, accelerator: Any) -> Ledger:
    """The ledgers of all processes as one."""
    if accelerator.num_processes == 1:
        return ledger
    states = optional(
        "accelerate.utils", package="accelerate", needed_for="training"
    ).gather_object([ledger.state_dict()])
    merged = ledger.like()
    for state in states:
        other = ledger.like()
        other.load_state_dict(state)
        merged = merged.merge(other)
    return merged


def _pairs(task: Task, config: Config, batch: Any, device: Any = "cpu") -> PairedBatches:
    # Without a clean set (a method that needs one has refused by then) any examples will do.
    clean = task.clean if len(task.clean) else task.train
    return PairedBatches(task.train, clean, seed=config.seed, options=batch, device=device)


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _baseline(
    pretrained: Pretrained | None, config: Config, data: str
) -> Mapping[str, Tensor] | None:
    """The state of a baseline that is at hand; refuses the folder of another run."""
    if pretrained is None or isinstance(pretrained, Mapping):
        return pretrained
    path = Path(pretrained)
    theirs, their_data = read_config(path)
    if theirs.method != "uniform" or theirs.seed != config.seed or their_data != data:
        raise SettingError(
            f"{path} holds a run of {theirs.method!r} with seed {theirs.seed}; expected a baseline: "
            f"'uniform' with seed {config.seed} on the same data"
        )
    return read_model(path)


def _read_back(folder: RunFolder, metrics: dict[str, Any], model: nn.Module, task: Task) -> Outcome:
    model.load_state_dict(read_model(folder.path))
    saved = checkpoints.newest(folder.checkpoints)
    if saved is None:
        raise SettingError(f"{folder.path} has lost its checkpoints; remove it and run again")
    state = saved["ledger"]
    ledger = Ledger(len(task.train), half_life=state["half_life"])
    ledger.load_state_dict(state)
    return Outcome(metrics, folder.points()[:-1], ledger, model.eval())
