"""The demonstration: noisy digits, plain training against reweighed.

2 kinds of noise x 2 methods x seeds, and for scale one plain run per seed on the clean images alone,
which shows what the checked labels are worth by themselves. For each seed the methods share the split,
the wrong labels, the initial network and the batches; only the weights of the examples differ.

It is no part of the paper, so it is not in the list of `reweigh reproduce`.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from torch import nn

from ...data import BatchOptions, Recipe
from ...errors import SettingError
from ...training import Config, Optimizer
from ..experiment import Block, Experiment, Row
from ..training_setup import Setup

SCALE = "demo"
CLASSES = 10
BACKGROUND = 3  # the class that all flipped labels turn into under "background" noise
NOISES = ("uniform", "background")
METHODS = ("uniform", "reweigh")
CLEAN_ONLY = "clean_only"
EVALUATIONS = 40  # points on a learning curve


@dataclass(frozen=True)
class DemoSettings:
    """What all runs share. The defaults were not chosen by test accuracy."""

    steps: int = 2000
    noise: float = 0.4
    batch_size: int = 100
    clean_per_class: int = 5
    learning_rate: float = 0.01
    momentum: float = 0.9
    hidden: int = 256

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SettingError(f"steps is {self.steps}; expected 1 or more")
        if not 0 < self.noise < 1:  # with no wrong label, or only wrong ones, nothing can be ranked
            raise SettingError(f"noise is {self.noise}; expected a share between 0 and 1")


def demonstration(settings: DemoSettings, *, seeds: int = 3) -> Experiment:
    """The demonstration as an experiment with one scale."""
    per_class = settings.clean_per_class
    clean = per_class * CLASSES
    setup = Setup(
        recipe=Recipe(
            "digits", rate=settings.noise, background=BACKGROUND, clean_per_class=per_class
        ),
        model=f"64-{settings.hidden}-{settings.hidden}",
        config=Config(
            steps=settings.steps,
            batch=BatchOptions(size=settings.batch_size, clean_size=clean),
            optimizer=Optimizer(
                "sgd", learning_rate=settings.learning_rate, momentum=settings.momentum
            ),
            evaluate_every=max(1, settings.steps // EVALUATIONS),
            probe=0,
        ),
        scaling="standard",
    )
    # A batch larger than the clean set would hold its images twice.
    alone = setup.changed(batch=replace(setup.config.batch, size=min(settings.batch_size, clean)))
    noises = tuple({"noise": noise} for noise in NOISES)
    return Experiment(
        id="demo",
        title="Digits with wrong labels",
        paper="",
        shows="demo",
        rows=(Row("uniform", "plain"), Row("reweigh", "reweighed", clean=True)),
        blocks={
            SCALE: (
                Block(setup, METHODS, noises, seeds),
                Block(alone, (CLEAN_ONLY,), noises[:1], seeds),  # sees no noise
            )
        },
    )


def perceptron(setup: Setup, classes: int) -> nn.Module:
    """A multi-layer perceptron; the setup's model is the sizes of its layers, such as 64-256-256."""
    sizes = [*map(int, setup.model.split("-")), classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
