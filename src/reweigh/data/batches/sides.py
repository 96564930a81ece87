"""What a batch is, how batches are drawn, and the two sides of a pair: train and clean."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws
from ..streams import AnyPart, Drawn, StreamedPart
from ..tasks import Part
from .augmentation import SCALINGS, Augmentation, Scaling, augment, draw_crops
from .order import Balanced, Shuffled


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


class Side:
    """The batches of one part; `name` is "train" or "clean"."""

    def __init__(
        self, name: str, part: AnyPart, seed: int, options: BatchOptions, device: torch.device | str
    ) -> None:
        self.part = part
        self._name, self._seed, self._options = name, seed, options
        self._size = options.size if name == "train" else options.clean_size
        self._device = torch.device(device)
        self._examples: _FromMemory | _FromShards = (
            _FromShards(part, seed, options)
            if isinstance(part, StreamedPart)
            else _FromMemory(name, part, seed, options, self._device)
        )

    def batch(self, step: int, augmentation: Augmentation | None) -> tuple[Batch, Tensor]:
        """Batch number `step`, and the positions of its examples in the part."""
        share = self._size // self._options.world
        first = self._options.rank * share
        drawn = self._examples.draw(step, first, share)
        inputs, targets, ids = (tensor.to(self._device) for tensor in drawn)
        if augmentation is not None:
            _require_images(self._name, inputs)
            # Drawn for the full batch, then cut: N ranks together see what one process sees.
            draws = Draws(self._seed, "augment", self._name, step)
            crops = draw_crops(augmentation, draws, self._size)
            inputs = augment(inputs, augmentation, crops.part(first, first + share))
        return Batch(self._options.as_numbers(inputs), targets), ids


class _FromMemory:
    def __init__(
        self, name: str, part: Part, seed: int, options: BatchOptions, device: torch.device
    ) -> None:
        if len(part) == 0:
            raise SettingError(f"the {name} part is empty; expected one example at least")
        if options.augmentation is not None:
            _require_images(name, part.inputs)
        train = name == "train"
        self._size = options.size if train else options.clean_size
        tensors = (part.inputs, part.ids, part.targets)
        self._inputs, self._ids, self._targets = (tensor.to(device) for tensor in tensors)
        self._order: Balanced | Shuffled = (
            Balanced(part.targets.cpu().numpy(), seed, "batches", name)
            if (options.balanced if train else options.clean_balanced)
            else Shuffled(len(part), seed, "batches", name)
        )

    def draw(self, step: int, first: int, count: int) -> Drawn:
        """The examples first ... first + count - 1 of batch number `step`."""
        visit = step * self._size + first
        ids = torch.from_numpy(self._order.read(visit, visit + count)).to(self._ids.device)
        # index_select copies row by row, in a third of the time that indexing with a tensor takes.
        inputs = self._inputs.index_select(0, self._ids.index_select(0, ids))
        return Drawn(inputs, self._targets.index_select(0, ids), ids)


class _FromShards:
    def __init__(self, part: StreamedPart, seed: int, options: BatchOptions) -> None:
        if options.balanced:
            raise SettingError(
                "balanced batches were asked of a stream, which has an order of its own; expected "
                "balanced=False, or a training set in memory"
            )
        self._stream = part.stream(
            size=options.size, seed=seed, rank=options.rank, world=options.world
        )
        self._workers = part.workers
        self._next = -1
        self._coming: Iterator[Drawn] = iter(())

    def draw(self, step: int, first: int, count: int) -> Drawn:
        """This rank's share of batch number `step`; the step after the last one costs no new start."""
        if step != self._next:
            self._coming = self._stream.batches(step, workers=self._workers)
        self._next = step + 1
        return next(self._coming)


def _require_images(name: str, inputs: Tensor) -> None:
    if inputs.ndim != 4:
        raise SettingError(
            f"augmentation was asked for {name} inputs of shape {tuple(inputs.shape)}; "
            f"expected images [n, c, h, w]: leave it out"
        )
