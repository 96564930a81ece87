"""The demonstration's data: scikit-learn's 8x8 digits, split, with wrong labels made on purpose.

    train   everything else, with a share of its labels flipped
    clean   a few images per class, with right labels
    test    36 images per class, with right labels

Everything is a pure function of its arguments and the seed (see `reweigh.data`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import data
from ..errors import SettingError, unknown

CLASSES = 10
BACKGROUND = 3  # the class that all flipped labels turn into under "background" noise
NOISES = ("uniform", "background")
MOST_CLEAN = 50  # per class: leaves a train set


@dataclass(frozen=True)
class Digits:
    """One seed's data. Images are float [n, 64] of mean 0 and variance 1, labels int64 [n]."""

    train_images: Tensor
    train_labels: Tensor  # as given: a share of them is wrong
    true_labels: Tensor  # for judging the ranking; no method sees them
    clean_images: Tensor
    clean_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    train_pixels: Tensor  # whole numbers 0 ... 16 [n, 64], for the report

    @property
    def wrong(self) -> Tensor:
        """Which train labels are wrong, bool [n]."""
        return self.train_labels != self.true_labels

    def task(self) -> data.Task:
        """The same as a task for training."""
        nothing = self.train_images[:0], self.train_labels[:0]
        return data.Task(
            train=_part(self.train_images, self.train_labels, self.true_labels),
            hyper_validation=_part(*nothing, nothing[1]),
            clean=_part(self.clean_images, self.clean_labels, self.clean_labels),
            test=_part(self.test_images, self.test_labels, self.test_labels),
            classes=tuple(map(str, range(CLASSES))),
            peak=1,
        )

    def clean_only(self) -> Digits:
        """The same with the clean images as the whole train set."""
        return replace(
            self,
            train_images=self.clean_images,
            train_labels=self.clean_labels,
            true_labels=self.clean_labels,
        )


def _part(images: Tensor, labels: Tensor, truth: Tensor) -> data.Part:
    return data.Part(images, torch.arange(len(labels)), labels, truth)


def load_digits(*, noise: str, rate: float, clean_per_class: int, seed: int) -> Digits:
    """Split the bundled digits and flip train labels; the split does not depend on the noise."""
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    if not 0 < rate < 1:  # with no wrong label, or only wrong ones, there is nothing to rank
        raise SettingError(f"noise is {rate}; expected a share between 0 and 1, such as 0.4")
    if not 1 <= clean_per_class <= MOST_CLEAN:
        raise SettingError(f"{clean_per_class} clean images per class; expected 1 to {MOST_CLEAN}")
    digits = data.load("digits")
    recipe = data.Recipe(
        "digits",
        f"{noise}_flip",
        rate=rate,
        background=BACKGROUND if noise == "background" else 0,
        clean_per_class=clean_per_class,
    )
    task = data.prepare(digits, recipe, seed=seed)
    train, clean, test = (part.examples() for part in (task.train, task.clean, task.test))
    scaling = data.Scaling.of(train, digits.peak)
    return Digits(
        train_images=scaling(train.inputs, digits.peak).flatten(1),
        train_labels=train.targets,
        true_labels=task.train.truth,
        clean_images=scaling(clean.inputs, digits.peak).flatten(1),
        clean_labels=clean.targets,
        test_images=scaling(test.inputs, digits.peak).flatten(1),
        test_labels=test.targets,
        train_pixels=train.inputs.flatten(1).int(),
    )
