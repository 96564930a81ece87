"""A part of a data set: which of its examples, under which labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .dataset import Examples


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
    return Part(
        examples.inputs, torch.arange(len(examples)), examples.targets, examples.targets.clone()
    )
