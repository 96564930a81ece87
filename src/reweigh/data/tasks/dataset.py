"""A data set in memory: images as bytes, labels as whole numbers; and parts of it, by id.

inputs   uint8  [n, channels, height, width]    memory-mapped when it comes from a file
targets  int64  [n]                             0 ... classes-1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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
    `given` has other labels for the train images, by name, int64 [n] each: those that people gave.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    peak: int = 255
    subset: bool = False
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        channels, height, width = self.train.inputs.shape[1:]
        return channels, height, width

    def class_counts(self) -> Tensor:
        """Train examples in each class, [classes]."""
        return torch.bincount(self.train.targets, minlength=len(self.classes))


@dataclass(frozen=True)
class Part:
    """Examples of a data set, by id: `inputs[ids[k]]` is the image of the k-th one.

    `targets` are the labels a method may see, `truth` the real ones; all of length n but `inputs`.
    """

    inputs: Tensor
    ids: Tensor
    targets: Tensor
    truth: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def changed(self) -> Tensor:
        """Which labels are wrong, bool [n]."""
        return self.targets != self.truth

    def examples(self) -> Examples:
        """Inputs and given targets on their own (copies the images)."""
        return Examples(self.inputs[self.ids], self.targets)

    def take(self, rows: Tensor | slice) -> Part:
        """The examples at some positions."""
        return Part(self.inputs, self.ids[rows], self.targets[rows], self.truth[rows])

    def head(self, count: int) -> Part:
        """The first `count` examples."""
        return self.take(slice(0, count))

    def probe(self, count: int) -> Part:
        """`count` examples, evenly spread."""
        rows = torch.arange(0, len(self), max(1, len(self) // max(1, count)))
        return self.take(rows[:count])

    def share(self, rank: int, world: int) -> Part:
        """The share of one process: every `world`-th example."""
        return self.take(slice(rank, None, world))

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and given targets in order, `size` at a time."""
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield self.inputs[self.ids[rows]], self.targets[rows]

    def identity(self) -> Iterator[bytes]:
        """The bytes that tell these examples from others."""
        yield self.ids.cpu().numpy().tobytes()
        yield self.targets.cpu().numpy().tobytes()


def whole(examples: Examples) -> Part:
    """All of `examples` as a part whose labels are taken as true."""
    targets = examples.targets
    return Part(examples.inputs, torch.arange(len(targets)), targets, targets.clone())
