"""A training set that stays in its shards, where `training.fit` takes one in memory.

    train = stream_part("train", Fields(("a", "b"), "label"), workers=2)
    fit(make_model, StreamedTask(train, clean=clean, test=test, classes=("no", "yes")), config)

In memory are the labels (8 bytes per example), which methods may ask for, and what a stream holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from ...errors import SettingError
from ..tasks import Part, Task
from .fields import Fields
from .row_arrays import Rows, cut, joined
from .shards import Shards, open_shards
from .stream import BUFFER, Stream, decoded, labelled

PROBE_PLACES = 16  # that a probe is read from


@dataclass(frozen=True, eq=False)
class StreamedPart:
    """Examples in shards; a position is an id.

    targets, truth     [n] the labels a method may see, and the real ones where they are known
    lanes, buffer      of the shuffle, see `Stream`
    workers            processes that read ahead; 0: read when it is needed
    first              the id of the first example: 0, but for the share of one process
    """

    shards: Shards
    fields: Fields
    targets: Tensor
    truth: Tensor
    lanes: int | None = None
    buffer: int = BUFFER
    workers: int = 0
    first: int = 0
    _probes: dict[int, Part] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def changed(self) -> Tensor:
        """Which labels are wrong, bool [n]."""
        return self.targets != self.truth

    def stream(self, *, size: int, seed: int, rank: int, world: int) -> Stream:
        """The batches of these examples that one rank gets."""
        return Stream(
            self.shards, self.fields, size=size, seed=seed, lanes=self.lanes, buffer=self.buffer,
            rank=rank, world=world,
        )  # fmt: skip

    def head(self, count: int) -> Part:
        """The first examples, in memory."""
        return self._read([(0, min(count, len(self)))])

    def probe(self, count: int) -> Part:
        """`count` examples in memory, from a few places: evenly spread ones would cost reading all."""
        count = min(count, len(self))
        if count in self._probes:
            return self._probes[count]
        places = min(PROBE_PLACES, max(1, count))
        edges = [(k * len(self) // places, count * k // places) for k in range(places + 1)]
        runs = [(at, at + high - low) for (at, low), (_, high) in pairwise(edges)]
        return self._probes.setdefault(count, self._read(runs))

    def share(self, rank: int, world: int) -> StreamedPart:
        """The share of one process."""
        low, high = len(self) * rank // world, len(self) * (rank + 1) // world
        rows = slice(low, high)
        return replace(self, targets=self.targets[rows], truth=self.truth[rows], first=self.first + low, _probes={})  # fmt: skip

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and given targets in order, `size` at a time."""
        at = 0
        for rows in cut(self._rows(0, len(self)), size):
            inputs = decoded(rows, self.shards, self.fields).inputs
            yield inputs, self.targets[at : at + len(inputs)]
            at += len(inputs)

    def identity(self) -> Iterator[bytes]:
        """The bytes that tell these examples from others."""
        yield repr((self.shards.rows, self.fields, self.lanes, self.buffer)).encode()
        yield self.targets.numpy().tobytes()

    def _rows(self, low: int, high: int) -> Iterator[Rows]:
        return self.shards.read_ids(self.first + low, self.first + high, self.fields.names)

    def _read(self, runs: Sequence[tuple[int, int]]) -> Part:
        pieces = [piece for low, high in runs for piece in self._rows(low, high)]
        at = torch.cat([torch.arange(low, high) for low, high in runs])
        if not pieces:
            return Part(torch.empty(0), at, self.targets[:0], self.truth[:0])
        inputs = decoded(joined(pieces), self.shards, self.fields).inputs
        return Part(inputs, torch.arange(len(at)), self.targets[at], self.truth[at])


@dataclass(frozen=True, eq=False)
class StreamedTask:
    """As `Task`, with the train part in shards; the others are small."""

    train: StreamedPart
    clean: Part
    test: Part
    classes: tuple[str, ...] = ()
    peak: int = 255

    @property
    def hyper_validation(self) -> Part:
        """Empty: none is kept apart."""
        return self.test.head(0)


AnyPart: TypeAlias = Part | StreamedPart
"""Examples in memory, or in shards on disk."""
AnyTask: TypeAlias = Task | StreamedTask
"""A task whose train part is in memory, or in shards on disk."""


def stream_part(
    source: Shards | str | Path | Sequence[str | Path],
    fields: Fields,
    *,
    truth: Tensor | None = None,
    lanes: int | None = None,
    buffer: int = BUFFER,
    workers: int = 0,
) -> StreamedPart:
    """Open shards as a train part: reads every label once.

    truth: the real labels [n] where they are known; without, the given ones are taken for them.
    """
    shards = source if isinstance(source, Shards) else open_shards(source)
    shards.require(*fields.names)
    pieces = shards.read_ids(0, len(shards), [fields.target])
    targets = torch.cat([labelled(rows, shards, fields) for rows in pieces])
    if truth is not None and truth.shape != targets.shape:
        raise SettingError(
            f"truth of shape {tuple(truth.shape)} for {len(targets):,} rows; expected one a row"
        )
    real = targets if truth is None else truth
    return StreamedPart(shards, fields, targets, real, lanes, buffer, workers)
