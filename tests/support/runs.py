"""Small runs that the tests of training share: digits in 8x8, a tiny network, few steps."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import torch
from torch import nn

from reweigh import data
from reweigh.training import Config, FineTune, Optimizer, Outcome


@functools.cache
def digits_task(seed: int = 0) -> data.Task:
    recipe = data.Recipe(
        "digits", "uniform_flip", rate=0.4, clean_per_class=2, hyper_validation=100, size=0
    )
    return data.prepare(data.load("digits"), recipe, seed=seed)


def tiny() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10)
    )


def no_dropout() -> nn.Module:
    """Whose training does not depend on how a batch is shared out."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def tiny_config(method: str = "reweigh", **changes) -> Config:
    settings = {
        "steps": 12,
        "batch": data.BatchOptions(size=50, clean_size=20, peak=16),
        "optimizer": Optimizer(learning_rate=0.05, weight_decay=1e-3),
        "drops": ((6, 0.1),),
        "fine_tune": FineTune(4),
        "evaluate_every": 4,
        "checkpoint_every": 5,
        "probe": 100,
    }
    return Config(method=method, **{**settings, **changes})


def assert_same(one: Outcome, other: Outcome) -> None:
    """To the bit: metrics, curve, model and ledger."""
    assert one.metrics == other.metrics
    assert one.curve == other.curve
    for (name, value), (_, twin) in zip(
        one.model.state_dict().items(), other.model.state_dict().items(), strict=True
    ):
        assert torch.equal(value, twin), name
    mine, theirs = one.ledger.state_dict(), other.ledger.state_dict()
    for name, value in mine.items():
        same = torch.equal(value, theirs[name]) if torch.is_tensor(value) else value == theirs[name]
        assert same, f"ledger: {name}"


class Power(BaseException):
    """The plug was pulled."""


def cut_at(step: int):
    """A progress that dies once so many steps are done."""

    def progress(now) -> None:
        if now.step == step:
            raise Power

    return progress


def helpers_on_path() -> str:
    """PYTHONPATH for a script of `tests/support` that is started by its file name."""
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, beside)])
