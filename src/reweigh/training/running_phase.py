"""A phase in progress: what is built for it, and what of it a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import AnyPart, PairedBatches, in_order
from ..errors import SettingError
from ..methods import Problem, make, with_clean
from .averages import Averages
from .config import Config
from .criteria import classes_of
from .phases import MAIN, Phase
from .run_context import RunContext, load
from .run_folder import read_config, read_model
from .trainer import Trainer, make_optimizer, unwrapped
from .weight_average import WeightAverage

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class RunningPhase:
    """A phase and its parts.

    `base` is the model that is trained; the trainer may train a larger one around it. `average` is
    that of its weights, if the run asks for one.
    """

    phase: Phase
    trainer: Trainer
    base: nn.Module
    pairs: PairedBatches
    averages: Averages
    pretrained: Weights | None
    average: WeightAverage | None = None

    @property
    def judged(self) -> nn.Module:
        """The model that is judged and kept."""
        return self.base if self.average is None else self.average.model

    @property
    def done(self) -> bool:
        """Whether all steps of the phase are done."""
        return self.pairs.step >= self.phase.schedule.steps

    def state_dict(self) -> dict[str, Any]:
        """All parts as tensors, numbers, strings, lists and dicts."""
        trainer = self.trainer
        scaler = trainer.accelerator.scaler
        return {
            "model": trainer.accelerator.unwrap_model(trainer.model).state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "method": {n: dict(part.state_dict()) for n, part in trainer.method.state.items()},
            "pairs": self.pairs.state_dict(),
            "averages": self.averages.state_dict(),
            "pretrained": None if self.pretrained is None else dict(self.pretrained),
            "average": None if self.average is None else self.average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        trainer = self.trainer
        load(trainer.accelerator.unwrap_model(trainer.model), state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        if trainer.accelerator.scaler is not None and state["scaler"] is not None:
            trainer.accelerator.scaler.load_state_dict(state["scaler"])
        for name, part in trainer.method.state.items():
            part.load_state_dict(state["method"][name])
        self.pairs.load_state_dict(state["pairs"])
        self.averages.load_state_dict(state["averages"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])


def build(
    context: RunContext,
    phase: Phase,
    ledger: Ledger,
    *,
    start: Weights | None,
    pretrained: Weights | None,
) -> RunningPhase:
    """A phase at its beginning, from a fresh model or from the weights `start`."""
    base = context.model(start)
    main = phase.name == MAIN
    share = context.config.average if main else None
    average = None if share is None else WeightAverage(base, share)  # before it is wrapped
    problem = _problem(context, phase.schedule.steps, pretrained if main else None)
    method = make(phase.method, problem, **(context.config.options if main else {}))
    method = with_clean(method) if phase.learn_clean else method
    model = base if method.wrap is None else method.wrap(base).to(context.device)
    optimizer = make_optimizer(context.config.optimizer, model, phase.base_rate)
    model, prepared = context.accelerator.prepare(model, optimizer)
    trainer = Trainer(
        context.accelerator,
        model,
        unwrapped(prepared, context.accelerator),
        method,
        ledger if main and method.sample.source == "train" else None,
        accumulate=context.config.accumulate,
        clip=context.config.clip,
    )
    pairs = context.pairs(method.sample)
    joined = context.accelerator.gather if context.processes > 1 else None
    averages = Averages(context.device, joined)
    return RunningPhase(
        phase, trainer, base, pairs, averages, pretrained if main else None, average
    )


def _problem(context: RunContext, steps: int, pretrained: Weights | None) -> Problem:
    """What the method of a phase may know of the task before training begins."""
    task, device, batch = context.task, context.device, context.config.batch
    classes = classes_of(task)
    one_batch = in_order(task.clean, size=max(1, len(task.clean)), options=batch, device=device)
    problem = Problem(
        criterion=context.criterion,
        classes=classes,
        train_labels=task.train.targets.to(device),
        clean_labels=task.clean.targets.to(device),
        clean=next(iter(one_batch), None),
        steps=steps,
        seed=context.config.seed,
        right_share=_right_share(task.train, classes).to(device) if classes else None,
    )
    if pretrained is None:
        return problem
    model = context.model(pretrained).eval().requires_grad_(False)
    confusion = context.judge(model, task.train)[0].confusion.T.to(device) if classes else None
    return replace(problem, pretrained=model, confusion=confusion)


def _right_share(train: AnyPart, classes: int) -> Tensor:
    """[classes] the share of right labels among those given each class; 1 if no label was given."""
    given = torch.bincount(train.targets, minlength=classes)
    right = torch.bincount(train.targets[~train.changed], minlength=classes)
    return torch.where(given > 0, right / given.clamp(min=1), 1.0)


def baseline_weights(
    pretrained: Path | str | Weights | None, config: Config, data: str
) -> Weights | None:
    """The weights of a baseline trained earlier; refuses the folder of another run."""
    if pretrained is None or isinstance(pretrained, Mapping):
        return pretrained
    path = Path(pretrained)
    theirs, their_data = read_config(path)
    if theirs.method != "uniform" or theirs.seed != config.seed or their_data != data:
        other = "" if their_data == data else " on other data"
        raise SettingError(
            f"{path} holds a run of {theirs.method!r} with seed {theirs.seed}{other}; expected a "
            f"baseline: 'uniform' with seed {config.seed} on the same data"
        )
    return read_model(path)
