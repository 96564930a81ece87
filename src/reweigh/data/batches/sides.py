"""The train and the clean half of the pairs: which examples, augmented, as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws
from ..streams import AnyPart, Drawn, StreamedPart
from ..tasks import Part
from .augmentation import Augmentation, augment, draw_crops
from .options import Batch, BatchOptions
from .order import Balanced, Shuffled


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
        drawn = self._examples.draw(step, self._options.rank * share, share)
        inputs, targets, ids = (tensor.to(self._device) for tensor in drawn)
        if augmentation is not None:
            _require_images(self._name, inputs)
            # Drawn for the full batch, then cut: N ranks together see what one process sees.
            crops = draw_crops(
                augmentation, Draws(self._seed, "augment", self._name, step), self._size
            )
            first = self._options.rank * share
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
        self._inputs = part.inputs.to(device)
        self._ids = part.ids.to(device)
        self._targets = part.targets.to(device)
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
