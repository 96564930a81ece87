"""What a data set is once it is in memory: images as bytes, labels as whole numbers.

inputs   uint8  [n, channels, height, width]    memory-mapped when it comes from a file
targets  int64  [n]                             0 ... classes-1
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import DataError


@dataclass(frozen=True)
class Examples:
    """Inputs and targets of equal length; the position of an example is its id."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise DataError(
                f"{len(self.inputs)} inputs came with {len(self.targets)} targets; "
                "expected one target for each input"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, ids: Tensor) -> Examples:
        """The examples at `ids`, in that order (a copy)."""
        return Examples(self.inputs[ids], self.targets[ids])


@dataclass(frozen=True)
class Dataset:
    """A named train and test set.

    `peak` is the byte for white (255; 16 in the 8x8 digits): `inputs / peak` is in [0, 1].
    `subset` is true when this is a marked part of the published set, never of its full size.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    peak: int = 255
    subset: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        channels, height, width = self.train.inputs.shape[1:]
        return channels, height, width

    def class_counts(self) -> Tensor:
        """Train examples in each class, [classes]."""
        return torch.bincount(self.train.targets, minlength=len(self.classes))
