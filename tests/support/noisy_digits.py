"""scikit-learn's digits with wrong labels, as flat tensors: the data of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reweigh.data import Scaling, prepare
from reweigh.data import load as load_dataset
from reweigh.experiments.catalog.demo import SCALE, DemoSettings, demonstration
from reweigh.experiments.experiment import cells


@dataclass(frozen=True)
class Digits:
    """One seed's data. Images are float [n, 64] of mean 0 and variance 1, labels int64 [n]."""

    train_images: Tensor
    train_labels: Tensor  # as given: a share of them is wrong
    true_labels: Tensor
    clean_images: Tensor
    clean_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def wrong(self) -> Tensor:
        """Which train labels are wrong, bool [n]."""
        return self.train_labels != self.true_labels


def load_digits(*, noise: str, rate: float, clean_per_class: int, seed: int) -> Digits:
    """What a cell of the demonstration trains on."""
    settings = DemoSettings(noise=rate, clean_per_class=clean_per_class)
    grid = cells(demonstration(settings), SCALE, seeds=seed + 1, only={"noise": noise})
    recipe = next(cell.setup.recipe for cell in grid if cell.seed == seed)
    task = prepare(load_dataset("digits"), recipe, seed=seed)
    train, clean, test = (part.examples() for part in (task.train, task.clean, task.test))
    scaling = Scaling.of(train, task.peak)
    return Digits(
        train_images=scaling(train.inputs, task.peak).flatten(1),
        train_labels=train.targets,
        true_labels=task.train.truth,
        clean_images=scaling(clean.inputs, task.peak).flatten(1),
        clean_labels=clean.targets,
        test_images=scaling(test.inputs, task.peak).flatten(1),
        test_labels=test.targets,
    )
