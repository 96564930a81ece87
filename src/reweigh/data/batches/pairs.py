"""Train and clean batches in pairs, without end, from any step.

    for pair in pairs.until(8000):
        step = reweigher(pair.train, pair.clean)        # batches are (inputs, targets)
        ledger.record(pair.train_ids, step.weights)     # ids are positions in the train part

Pair t is a pure function of (data, options, t): its examples, their crops and flips, everything. So
the state is the number t; a run resumed in the middle of an epoch sees exactly what it would have
seen; nothing is read from or left in a global generator; and ranks that share a batch agree on it.
A batch is always full: epochs follow each other without a gap, the clean set is cycled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import SettingError
from ...rng import Draws
from ..streams.batches import Drawn
from ..streams.training_set import AnyPart, StreamedPart
from ..tasks.task import Part
from .augmentation import SCALINGS, Augmentation, Scaling, augment, draw_crops
from .order import Balanced, Shuffled

_UNIT = SCALINGS["unit"]


class Batch(NamedTuple):
    """Inputs, float32 [n, c, h, w] or whatever shape a table has, and their labels, [n]."""

    inputs: Tensor
    targets: Tensor


class Pair(NamedTuple):
    """One step's worth. The ids are positions in the train and the clean part, int64 [n], [m]."""

    train: Batch
    clean: Batch
    train_ids: Tensor
    clean_ids: Tensor


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
    scaling: Scaling = _UNIT
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


class PairedBatches:
    """The endless sequence of pairs; `step` is the number of the next one."""

    def __init__(
        self,
        train: AnyPart,
        clean: Part,
        *,
        seed: int,
        options: BatchOptions | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        options = options or BatchOptions()
        self.step = 0
        self._options = options
        self._fingerprint = _fingerprint(seed, options, train, clean)
        self._train: _Side | _StreamedSide = (
            _StreamedSide(train, seed, options, device)
            if isinstance(train, StreamedPart)
            else _Side("train", train, seed, options, device)
        )
        self._clean = _Side("clean", clean, seed, options, device)

    def pair(self, step: int) -> Pair:
        """Pair number `step`, without moving on."""
        train, train_ids = self._train.batch(step, self._options.augmentation)
        clean, clean_ids = self._clean.batch(
            step, self._options.augmentation if self._options.augment_clean else None
        )
        return Pair(train, clean, train_ids, clean_ids)

    def __iter__(self) -> Iterator[Pair]:
        return self

    def __next__(self) -> Pair:
        pair = self.pair(self.step)
        self.step += 1
        return pair

    def until(self, steps: int) -> Iterator[Pair]:
        """The pairs from here up to step `steps`: after a resume, only those still to come."""
        while self.step < steps:
            yield next(self)

    @property
    def epoch(self) -> float:
        """Passes over the train part so far."""
        return self.step * self._options.size / len(self._train.part)

    def state_dict(self) -> dict[str, int | str]:
        """All there is to remember: two entries, plain JSON."""
        return {"step": self.step, "fingerprint": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """Go on where `state` was taken; refuses a state of other data, seed or options."""
        if state.get("fingerprint") != self._fingerprint:
            raise SettingError(
                "this batch state belongs to other data, another seed or other batch options; "
                "resume with the settings the run was started with"
            )
        self.step = int(state["step"])


class _Side:
    """The train or the clean half of the pairs."""

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
        return Batch(_numbers(images, self._options), targets), ids


class _StreamedSide:
    """The train half of the pairs, from shards; steps that follow each other are read in passing."""

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
        if step != self._next:
            self._coming = self._stream.batches(step, workers=self.part.workers)
        self._next = step + 1
        found = next(self._coming)
        images, ids = found.inputs.to(self._device), found.ids.to(self._device)
        if augmentation is not None:
            images = _augmented(
                images, augmentation, Draws(self._seed, "augment", "train", step),
                first=self._options.rank * len(ids), of=self._options.size,
            )  # fmt: skip
        return Batch(_numbers(images, self._options), found.targets.to(self._device)), ids


def _require_images(name: str, inputs: Tensor) -> None:
    if inputs.ndim != 4:
        raise SettingError(
            f"augmentation was asked for {name} inputs of shape {tuple(inputs.shape)}; "
            f"expected images [n, c, h, w]: leave it out"
        )


def _augmented(
    images: Tensor, augmentation: Augmentation, draws: Draws, *, first: int, of: int
) -> Tensor:
    """Drawn for the whole batch `of` so many, then cut: N ranks together see what one process sees."""
    _require_images("train", images)
    crops = draw_crops(augmentation, draws, of)
    return augment(images, augmentation, crops.part(first, first + len(images)))


def in_order(
    part: AnyPart,
    *,
    size: int = 500,
    options: BatchOptions | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[Batch]:
    """Every example once, in order, unaugmented: for evaluation. The last batch may be smaller."""
    options = options or BatchOptions()
    for inputs, targets in part.chunks(size):
        yield Batch(_numbers(inputs.to(device), options), targets.to(device))


def _numbers(inputs: Tensor, options: BatchOptions) -> Tensor:
    """Bytes are images, and are scaled; a table's columns are numbers already, kept short on disk."""
    if inputs.dtype == torch.uint8:
        return options.scaling(inputs, options.peak)
    return inputs.float() if inputs.dtype == torch.float16 else inputs


def _fingerprint(seed: int, options: BatchOptions, *parts: AnyPart) -> str:
    described = {**asdict(options), "rank": 0, "world": 1}
    digest = hashlib.sha256(repr((seed, sorted(described.items()))).encode())
    for part in parts:
        for content in part.identity():
            digest.update(content)
    return digest.hexdigest()[:16]
