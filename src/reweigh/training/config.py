"""What a run is: everything that decides its outcome besides the data and the model.

Config(method="reweigh", steps=2000)              as a value
Config(method="s_model_conf+es+ft", ...)          suffixes: early stop, fine-tune
config.json() / Config.of(json)                   as text, both ways
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..data import BatchOptions
from ..errors import DataError, ReweighError, SettingError, unknown
from ..runs import as_json, differences, of_json
from .schedules import Drops, FineTune, Schedule, require_positive, require_whole

OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("no", "fp16", "bf16", "fp8")


@dataclass(frozen=True)
class Optimizer:
    """`momentum` is SGD's; `weight_decay` pulls matrices and kernels, no bias or norm."""

    name: str = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise unknown("optimizer", self.name, OPTIMIZERS)
        require_positive(learning_rate=self.learning_rate)
        if self.weight_decay < 0 or not 0 <= self.momentum < 1:
            raise SettingError(
                f"weight_decay={self.weight_decay}, momentum={self.momentum}; expected a decay "
                f"from 0 up and a momentum from 0 to under 1"
            )


@dataclass(frozen=True)
class Config:
    """One run.

    method             as typed, with suffixes: "reweigh", "uniform+es+ft"
    options            of the method, such as {"backend": "double_backward"}
    steps, drops       of the main phase, see `Schedule`
    early_stop         the schedule for +es; None: the same one, stopped at three quarters
    fine_tune          what +ft adds
    pretrain_steps     of the plain baseline some methods begin with; None: as many as `steps`
    batch              sizes, augmentation, scaling; `accumulate` cuts a batch into as many pieces
    evaluate_every     steps between evaluations; 0: only at the end of a phase
    checkpoint_every   steps between checkpoints; 0: only at the end of a phase
    patience           early stopping (best_weights.py): evaluations in vain on the hyper-validation part,
                       after which the main phase ends with its best weights; None: never
    keep               checkpoints to keep
    probe              train examples looked at in an evaluation on the way (the last one takes all)
    average            judge and keep an average of the weights over this share of the run, such as 0.1
                       (weight_average.py); None: the last ones
    clip               largest gradient norm; None: no clipping
    precision          "no", "fp16", "bf16", "fp8", as Accelerate has them
    device             "auto", or "cpu" even where there is something faster
    trackers           names Accelerate knows: "tensorboard", "wandb", ...
    threads            of the CPU; None leaves them as they are. Another number, other roundings
    """

    method: str = "reweigh"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    steps: int = 2000
    seed: int = 0
    batch: BatchOptions = field(default_factory=BatchOptions)
    optimizer: Optimizer = field(default_factory=Optimizer)
    drops: Drops = ()
    early_stop: Schedule | None = None
    fine_tune: FineTune = field(default_factory=FineTune)
    pretrain_steps: int | None = None
    evaluate_every: int = 0
    checkpoint_every: int = 1000
    patience: int | None = None
    keep: int = 2
    probe: int = 1000
    accumulate: int = 1
    clip: float | None = None
    average: float | None = None
    precision: str = "no"
    device: str = "auto"
    trackers: tuple[str, ...] = ()
    threads: int | None = None

    def __post_init__(self) -> None:
        Schedule(self.steps, self.drops)
        require_whole(0, seed=self.seed, evaluate_every=self.evaluate_every, probe=self.probe)
        require_whole(0, checkpoint_every=self.checkpoint_every)
        require_whole(1, keep=self.keep, accumulate=self.accumulate)
        require_whole(1, threads=self.threads or 1)
        require_whole(1, pretrain_steps=1 if self.pretrain_steps is None else self.pretrain_steps)
        require_whole(1, patience=1 if self.patience is None else self.patience)
        if self.patience is not None and not self.evaluate_every:
            raise SettingError("patience counts evaluations; expected evaluate_every above 0, too")
        if self.clip is not None:
            require_positive(clip=self.clip)
        if self.average is not None and not 0 < self.average <= 1:
            raise SettingError(f"average is {self.average}; expected a share from 0 to 1, or None")
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.device not in ("auto", "cpu"):
            raise unknown("device", self.device, ("auto", "cpu"))
        if self.batch.size % self.accumulate:
            raise SettingError(
                f"a batch of {self.batch.size} cannot be cut into {self.accumulate} equal pieces; "
                f"take a multiple"
            )

    @property
    def main(self) -> Schedule:
        """The schedule without early stop."""
        return Schedule(self.steps, self.drops)

    @property
    def stopped(self) -> Schedule:
        """The schedule of +es."""
        return self.early_stop or replace(self.main, steps=max(1, self.steps * 3 // 4))

    def json(self) -> str:
        """All fields, as the text of a JSON object."""
        return json.dumps(as_json(self), indent=2)

    @classmethod
    def of(cls, text: str) -> Config:
        """The config a `json()` was made of; refuses anything else."""
        try:
            return of_json(cls, json.loads(text))
        except (ValueError, TypeError) as error:
            if isinstance(error, ReweighError):
                raise
            raise DataError(
                f"this is no config: {error}; expected what Config.json writes"
            ) from None

    def differences(self, other: Config) -> list[str]:
        """The fields in which two configs differ: "steps: 100 and 200"."""
        both = differences(self, other)
        return [f"{name}: {mine} and {theirs}" for name, (mine, theirs) in both.items()]
