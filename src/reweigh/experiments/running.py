"""One cell: prepare the data, train stage by stage, judge.

Every stage has a run folder, named after all that decides it. Cells that share a stage train it
once: whoever comes first; the others wait and find it finished. A cell that was killed
goes on from its last checkpoint.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import SCALINGS, Scaling, Task, load, prepare
from ..files import locked
from ..models import build
from ..training import Config, Now, Outcome, fit, read_model
from .experiment import Cell
from .setup import Setup, digest
from .stages import Stage, stages
from .weight_distribution import weigh_unseen
from .workers import Stopped

Json = dict[str, Any]
Tick = Callable[[int], None]

BESIDE = ("class_accuracy", "confusion")  # metrics that are no numbers
DIGITS = 6


def cell_steps(cell: Cell) -> int:
    """Optimizer steps of all stages, also of those that another cell may do."""
    return sum(stage.steps for stage in stages(cell.method, cell.setup.config))


def run_cell(cell: Cell, *, work: Path, threads: int | None, tick: Tick) -> Json:
    """Train and judge `cell`: its `metrics`, `seconds`, and `details` for the figures."""
    begun = time.monotonic()
    setup = cell.setup
    task = prepare(load(setup.recipe.dataset), setup.recipe, seed=cell.seed)
    config = _config(setup, task, seed=cell.seed, threads=threads)
    plan = stages(cell.method, config)
    folders = {stage.name: work / _folder_name(cell, stage) for stage in plan}
    outcomes = {
        stage.name: _train(stage, folders, setup=setup, task=task, tick=tick) for stage in plan
    }
    outcome = outcomes[plan[-1].name]
    metrics = _rounded({k: v for k, v in outcome.metrics.items() if k not in BESIDE})
    details = {
        "curve": _curve(outcomes, plan),
        **{name: _rounded(outcome.metrics.get(name)) for name in BESIDE},
        "classes": list(task.classes),
        "sizes": {
            "train": len(task.train),
            "wrong": int(task.train.changed.sum()),
            "clean": len(task.clean),
            "hyper_validation": len(task.hyper_validation),
            "test": len(task.test),
        },
    }
    if setup.measure == "weights":
        summary, details["weights"] = weigh_unseen(
            outcome.model,
            task,
            config.batch,
            background=setup.recipe.background,
            rate=setup.recipe.rate,
            seed=cell.seed,
        )
        metrics |= _rounded(summary)
    return {
        "metrics": metrics,
        "seconds": round(time.monotonic() - begun, 2),
        "details": details,
    }


def _train(
    stage: Stage, folders: dict[str, Path], *, setup: Setup, task: Task, tick: Tick
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
            partial(_model, setup, len(task.classes), folders.get(stage.start)),
            task,
            stage.config,
            out=folder,
            pretrained=folders.get(stage.pretrained),
            progress=progress,
        )
    tick(stage.steps - counted)  # what an earlier call or another cell has done
    return outcome


def _model(setup: Setup, classes: int, start: Path | None) -> nn.Module:
    model = build(setup.model, classes=classes, as_published=setup.as_published)
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


def _folder_name(cell: Cell, stage: Stage) -> str:
    what = [*(f"{name}={value}" for name, value in cell.setting), f"seed={cell.seed}"]
    return "_".join([stage.name, *what, digest(cell.setup.described())])


def _curve(outcomes: dict[str, Outcome], plan: list[Stage]) -> list[Json]:
    """The evaluations of the method itself: of what it was tuned from, then of the tuning."""
    last = plan[-1]
    points = list(outcomes[last.start].curve) if last.start else []
    phase = {"phase": "fine_tune"} if last.start else {}
    return _rounded([*points, *({**point, **phase} for point in outcomes[last.name].curve)])  # type: ignore[no-any-return]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
