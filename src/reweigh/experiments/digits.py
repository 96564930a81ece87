"""The demonstration's data: scikit-learn's 8x8 digits, split, with wrong labels made on purpose.

    train   everything else, with a share of its labels flipped
    clean   a few images per class, with right labels
    test    500 images, with right labels

Everything is a pure function of its arguments and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import MissingExtraError, SettingError, unknown

CLASSES = 10
BACKGROUND = 3  # the class that all flipped labels turn into under "background" noise
NOISES = ("uniform", "background")
TEST_SIZE = 500
MOST_CLEAN = 50  # per class: leaves a train set


@dataclass(frozen=True)
class Digits:
    """One seed's data. Images are float [n, 64] in 0 ... 1, labels int64 [n]."""

    train_images: Tensor
    train_labels: Tensor  # as given: a share of them is wrong
    true_labels: Tensor  # for judging the ranking; no method sees them
    clean_images: Tensor
    clean_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def wrong(self) -> Tensor:
        """Which train labels are wrong, bool [n]."""
        return self.train_labels != self.true_labels

    def clean_only(self) -> Digits:
        """The same with the clean images as the whole train set."""
        return replace(
            self,
            train_images=self.clean_images,
            train_labels=self.clean_labels,
            true_labels=self.clean_labels,
        )


def load_digits(*, noise: str, rate: float, clean_per_class: int, seed: int) -> Digits:
    """Split the bundled digits and flip train labels; the split does not depend on the noise."""
    if noise not in NOISES:
        raise unknown("noise", noise, NOISES)
    if not 0 < rate < 1:  # with no wrong label, or only wrong ones, there is nothing to rank
        raise SettingError(f"noise is {rate}; expected a share between 0 and 1, such as 0.4")
    if not 1 <= clean_per_class <= MOST_CLEAN:
        raise SettingError(f"{clean_per_class} clean images per class; expected 1 to {MOST_CLEAN}")
    images, labels = _bundled()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator)
    test, rest = order[:TEST_SIZE], order[TEST_SIZE:]
    clean = torch.cat([rest[labels[rest] == c][:clean_per_class] for c in range(CLASSES)])
    train = rest[~torch.isin(rest, clean)]
    return Digits(
        train_images=images[train],
        train_labels=flip(labels[train], noise=noise, rate=rate, generator=generator),
        true_labels=labels[train],
        clean_images=images[clean],
        clean_labels=labels[clean],
        test_images=images[test],
        test_labels=labels[test],
    )


def flip(labels: Tensor, *, noise: str, rate: float, generator: torch.Generator) -> Tensor:
    """Exactly round(rate * eligible) labels made wrong, picked at random.

    uniform:    to any other class, each equally likely; all labels are eligible.
    background: to the background class; eligible are the labels outside it.
    """
    everything = torch.arange(len(labels))
    eligible = everything if noise == "uniform" else everything[labels != BACKGROUND]
    shuffled = eligible[torch.randperm(len(eligible), generator=generator)]
    picked = shuffled[: round(rate * len(eligible))]
    given = labels.clone()
    if noise == "uniform":
        shift = torch.randint(1, CLASSES, (len(picked),), generator=generator)
        given[picked] = (labels[picked] + shift) % CLASSES
    else:
        given[picked] = BACKGROUND
    return given


def _bundled() -> tuple[Tensor, Tensor]:
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError as error:
        raise MissingExtraError(
            "the demo needs scikit-learn, which is not installed; run: pip install 'reweigh[app]'"
        ) from error
    images, labels = bundled(return_X_y=True)
    return torch.from_numpy(images).float() / 16, torch.from_numpy(labels).long()
