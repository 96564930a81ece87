"""The two halves of a pair: batches of a part in memory, and of one in shards."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws
from ..streams import Drawn, StreamedPart
from ..tasks import Part
from .augmentation import Augmentation, augment, draw_crops
from .options import Batch, BatchOptions
from .order import Balanced, Shuffled


class MemorySide:
    """The train or the clean half of the pairs, from examples in memory."""

    def __init__(
        self,
        name: str,
        part: Part,
        seed: int,
        options: BatchOptions,
        device: torch.device | str,
    ) -> None:
        if len(part) == 0:
            raise SettingError(f"the {name} part is empty; expected one example at least")
        train = name == "train"
        balanced = options.balanced if train else options.clean_balanced
        if options.augmentation is not None:
            _require_images(name, part.inputs)
        self.part = part
        self.size = options.size if train else options.clean_size
        self._seed, self._name, self._options = seed, name, options
        self._device = torch.device(device)
        self._inputs = part.inputs.to(self._device)
        self._ids = part.ids.to(self._device)
        self._targets = part.targets.to(self._device)
        self._order: Balanced | Shuffled = (
            Balanced(part.targets.cpu().numpy(), seed, "batches", name)
            if balanced
            else Shuffled(len(part), seed, "batches", name)
        )

    def batch(self, step: int, augmentation: Augmentation | None) -> tuple[Batch, Tensor]:
        """Batch number `step`, and the positions of its examples in the part."""
        share = self.size // self._options.world
        first = step * self.size + self._options.rank * share
        ids = torch.from_numpy(self._order.read(first, first + share)).to(self._device)
        # index_select copies row by row, in a third of the time that indexing with a tensor takes.
        images = self._inputs.index_select(0, self._ids.index_select(0, ids))
        if augmentation is not None:
            images = _augmented(
                images, augmentation, Draws(self._seed, "augment", self._name, step),
                first=self._options.rank * share, of=self.size,
            )  # fmt: skip
        targets = self._targets.index_select(0, ids)
        return Batch(self._options.as_numbers(images), targets), ids


class StreamedSide:
    """The train half of the pairs, from shards; consecutive steps are read without a new start."""

    def __init__(
        self,
        part: StreamedPart,
        seed: int,
        options: BatchOptions,
        device: torch.device | str,
    ) -> None:
        if options.balanced:
            raise SettingError(
                "balanced batches were asked of a stream, which has an order of its own; expected "
                "balanced=False, or a training set in memory"
            )
        self.part, self._seed, self._options = part, seed, options
        self._device = torch.device(device)
        self._stream = part.stream(
            size=options.size, seed=seed, rank=options.rank, world=options.world
        )
        self._next = -1
        self._coming: Iterator[Drawn] = iter(())

    def batch(self, step: int, augmentation: Augmentation | None) -> tuple[Batch, Tensor]:
        """Batch number `step`, and the positions of its examples in the part."""
        if step != self._next:
            self._coming = self._stream.batches(step, workers=self.part.workers)
        self._next = step + 1
        drawn = next(self._coming)
        images, ids = drawn.inputs.to(self._device), drawn.ids.to(self._device)
        if augmentation is not None:
            images = _augmented(
                images, augmentation, Draws(self._seed, "augment", "train", step),
                first=self._options.rank * len(ids), of=self._options.size,
            )  # fmt: skip
        return Batch(self._options.as_numbers(images), drawn.targets.to(self._device)), ids


def _require_images(name: str, inputs: Tensor) -> None:
    if inputs.ndim != 4:
        raise SettingError(
            f"augmentation was asked for {name} inputs of shape {tuple(inputs.shape)}; "
            f"expected images [n, c, h, w]: leave it out"
        )


def _augmented(
    images: Tensor, augmentation: Augmentation, draws: Draws, *, first: int, of: int
) -> Tensor:
    """Augment images first ... of a batch of `of`: the crops are drawn for the full batch.

    So N ranks together see what one process sees.
    """
    _require_images("train", images)
    crops = draw_crops(augmentation, draws, of)
    return augment(images, augmentation, crops.part(first, first + len(images)))
