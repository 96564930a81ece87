"""What a batch is, and how batches are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import SettingError
from .augmentation import SCALINGS, Augmentation, Scaling


class Batch(NamedTuple):
    """Inputs, float32 [n, c, h, w], or [n, columns] of a table, and their labels, [n]."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class BatchOptions:
    """How batches are drawn.

    size, clean_size   examples in a train and in a clean batch (over all ranks)
    balanced           train batches visit every class equally often: resampling
    clean_balanced     the same for clean batches
    augmentation       crops and flips; `augment_clean=False` leaves clean images as they are
    scaling, peak      of images, which come as bytes; other inputs are taken as they are
    rank, world        this process takes the rank-th of `world` equal slices of each batch
    """

    size: int = 100
    clean_size: int = 100
    balanced: bool = False
    clean_balanced: bool = False
    augmentation: Augmentation | None = None
    augment_clean: bool = True
    scaling: Scaling = SCALINGS["unit"]
    peak: int = 255
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("clean_size", self.clean_size)):
            if value < 1:
                raise SettingError(f"batch {name} is {value}; expected a whole number from 1 up")
            if value % self.world:
                raise SettingError(
                    f"batch {name} is {value}, which {self.world} processes cannot share equally; "
                    f"take a multiple of {self.world}"
                )
        if not 0 <= self.rank < self.world:
            raise SettingError(f"rank is {self.rank}; expected 0 ... {self.world - 1}")

    def as_numbers(self, inputs: Tensor) -> Tensor:
        """Bytes are images, and are scaled; columns of a table are numbers already.

        Columns may be kept in 16 bits on disk, and are computed with in 32.
        """
        if inputs.dtype == torch.uint8:
            return self.scaling(inputs, self.peak)
        return inputs.float() if inputs.dtype == torch.float16 else inputs
