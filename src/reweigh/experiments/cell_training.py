"""One cell: prepare the data, train stage by stage, judge.

Every stage has a run folder, named after all that decides it. Cells that share a stage train it
once: whoever comes first; the others wait and then read it. A cell that was killed goes on from its
last checkpoint.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import SCALINGS, Scaling, Task, load, prepare
from ..files import locked
from ..models import build
from ..results import Json
from ..training import Config, Now, Outcome, fit, read_model
from .experiment import Cell
from .label_audit import audit_labels
from .method_stages import MethodStage, stages
from .training_setup import Setup, digest
from .weight_distribution import weigh_unseen
from .workers import Stopped, Tick

BESIDE = ("class_accuracy", "confusion")  # metrics that are no numbers
DIGITS = 6


@dataclass(frozen=True)
class TrainedCell:
    """A cell's data, and what came of each of its stages; the last one is the method itself."""

    task: Task
    config: Config
    plan: list[MethodStage]
    outcomes: list[Outcome]

    @property
    def outcome(self) -> Outcome:
        """Of the last stage."""
        return self.outcomes[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """Examples of each part, and wrong labels among those of the train part."""
        task = self.task
        return {
            "train": len(task.train),
            "wrong": int(task.train.changed.sum()),
            "clean": len(task.clean),
            "hyper_validation": len(task.hyper_validation),
            "test": len(task.test),
        }


def cell_steps(cell: Cell) -> int:
    """Optimizer steps of all stages, also of those that another cell may do."""
    return sum(stage.steps for stage in stages(cell.method, cell.setup.config))


def named_model(setup: Setup, classes: int) -> nn.Module:
    """The network that the setup names."""
    return build(setup.model, classes=classes, as_published=setup.as_published)


def train_cell(
    cell: Cell,
    *,
    work: Path,
    threads: int | None,
    tick: Tick,
    make_model: Callable[[Setup, int], nn.Module] = named_model,
) -> TrainedCell:
    """Train `cell` with its run folders inside `work`; `tick(k)` is told of k more steps.

    make_model: called with the setup and the number of classes.
    """
    setup = cell.setup
    task = prepare(load(setup.recipe.dataset), setup.recipe, seed=cell.seed)
    config = _config(setup, task, seed=cell.seed, threads=threads)
    plan = stages(cell.method, config)
    folders = {stage.name: work / _folder_name(cell, stage) for stage in plan}
    make = partial(make_model, setup, len(task.classes))
    outcomes = [_train(stage, folders, make_model=make, task=task, tick=tick) for stage in plan]
    return TrainedCell(task, config, plan, outcomes)


def run_cell(cell: Cell, *, work: Path, threads: int | None, tick: Tick) -> Json:
    """Train and judge `cell`: its `metrics`, `seconds`, and `details` for the figures."""
    begun = time.monotonic()
    trained = train_cell(cell, work=work, threads=threads, tick=tick)
    outcome, setup = trained.outcome, cell.setup
    metrics = _rounded({k: v for k, v in outcome.metrics.items() if k not in BESIDE})
    details = {
        "curve": _curve(trained),
        **{name: _rounded(outcome.metrics.get(name)) for name in BESIDE},
        "classes": list(trained.task.classes),
        "sizes": trained.sizes,
    }
    if setup.measure == "weights":
        summary, details["weights"] = weigh_unseen(
            outcome.model,
            trained.task,
            trained.config.batch,
            background=setup.recipe.background,
            rate=setup.recipe.rate,
            seed=cell.seed,
        )
        metrics |= _rounded(summary)
    if setup.measure == "audit":
        tuned = bool(trained.plan[-1].start)  # on the clean images: its ledger is of those
        numbers, matrix = audit_labels(
            outcome.model,
            trained.outcomes[-2 if tuned else -1].ledger,
            trained.task.train,
            len(trained.task.classes),
            trained.config.batch,
        )
        metrics |= _rounded(numbers)
        details |= matrix
    return {"metrics": metrics, "seconds": round(time.monotonic() - begun, 2), "details": details}


def _train(
    stage: MethodStage,
    folders: dict[str, Path],
    *,
    make_model: Callable[[], nn.Module],
    task: Task,
    tick: Tick,
) -> Outcome:
    folder = folders[stage.name]
    counted = 0

    def progress(now: Now) -> None:
        nonlocal counted
        try:
            tick(now.step - counted)
        except Stopped:
            signal.raise_signal(signal.SIGTERM)  # `fit` answers it by saving where it is
        counted = now.step

    with locked(folder.with_name(f".{folder.name}.lock")):
        outcome = fit(
            partial(_started, make_model, folders.get(stage.start)),
            task,
            stage.config,
            out=folder,
            pretrained=folders.get(stage.pretrained),
            progress=progress,
        )
    tick(stage.steps - counted)  # what an earlier call or another cell has done
    return outcome


def _started(make_model: Callable[[], nn.Module], start: Path | None) -> nn.Module:
    model = make_model()
    if start is not None:
        model.load_state_dict(read_model(start))
    # The same to rounding; on a CPU a step of LeNet then takes two thirds of the time.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _config(setup: Setup, task: Task, *, seed: int, threads: int | None) -> Config:
    scaling = (
        Scaling.of(task.train.examples(), task.peak)
        if setup.scaling == "standard"
        else SCALINGS[setup.scaling]
    )
    batch = replace(setup.config.batch, scaling=scaling, peak=task.peak)
    return replace(setup.config, batch=batch, seed=seed, threads=threads)


def _folder_name(cell: Cell, stage: MethodStage) -> str:
    what = [*(f"{name}={value}" for name, value in cell.setting), f"seed={cell.seed}"]
    return "_".join([stage.name, *what, digest(cell.setup.described())])


def _curve(trained: TrainedCell) -> list[Json]:
    """The evaluations of the method itself: of what it was tuned from, then of the tuning."""
    own = trained.outcome.curve
    if trained.plan[-1].start:
        own = [*trained.outcomes[-2].curve, *({**point, "phase": "fine_tune"} for point in own)]
    return _rounded(own)  # type: ignore[no-any-return]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
