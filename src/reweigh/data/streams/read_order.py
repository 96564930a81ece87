"""In which order the rows of many shards are read: a bounded shuffle, the same for any number of readers.

    epoch e          the shards in an order keyed by (seed, e), one after the other: N rows
    lane l of L      a stretch of it, of N s_l / n rows, where s_l = n (l+1) // L - n l // L; its rows
                     are read in order, and each block of buffer // L rows is shuffled, keyed by
                     (seed, e, l, block)
    batch t of n     the next s_l rows of every lane, lane by lane

Ranks and workers share out the lanes, never the order: batch t is the same for one process as for
eight, and its rows come from L places of the data. A lane's epochs follow each other without a gap,
so that a batch is always full. All of it is a pure function of t: resuming needs one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...errors import SettingError
from ...rng import Draws, Indices


@dataclass(frozen=True)
class Lanes:
    """`rows` of each shard; batches of `size`; `count` lanes, with a `buffer` of rows over all."""

    rows: tuple[int, ...]
    size: int
    count: int
    buffer: int
    seed: int

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("lanes", self.count), ("buffer", self.buffer)):
            if value < 1:
                raise SettingError(f"{name} is {value}; expected a whole number from 1 up")
        if self.size < self.count:
            raise SettingError(
                f"a batch of {self.size} from {self.count} lanes; expected an example of each: take "
                "a larger batch or fewer lanes"
            )
        if sum(self.rows) < self.size:
            raise SettingError(
                f"a batch of {self.size} from {sum(self.rows)} rows; take a smaller batch"
            )

    @property
    def block(self) -> int:
        """Rows of a lane that are shuffled together."""
        return max(1, self.buffer // self.count)

    def share(self, lane: int) -> int:
        """Its rows in a batch."""
        return self._edge(lane + 1) - self._edge(lane)

    def stretch(self, lane: int) -> tuple[int, int]:
        """Its rows in the order of an epoch: from, to."""
        total = sum(self.rows)
        low, high = (self._edge(k) * total // self.size for k in (lane, lane + 1))
        return low, high

    def length(self, lane: int) -> int:
        """Its rows in an epoch."""
        low, high = self.stretch(lane)
        return high - low

    def _edge(self, lane: int) -> int:
        return self.size * lane // self.count

    def of(self, rank: int, world: int) -> range:
        """The lanes of one rank, or of one worker of a rank's."""
        return range(rank * self.count // world, (rank + 1) * self.count // world)

    def shuffle(self, epoch: int, lane: int, block: int, length: int) -> Indices:
        """In which order the rows of a block come out."""
        return Draws(self.seed, "stream", epoch, lane, block).permutation(length)

    def runs(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """(shard, from row, to row) of the stretch first ... last-1 of an epoch's order."""
        order = Draws(self.seed, "shards", epoch).permutation(len(self.rows))
        ends = np.cumsum(self._sizes[order])
        at = int(np.searchsorted(ends, first, side="right"))
        while first < last:
            start = int(ends[at]) - self.rows[order[at]]
            stop = min(int(ends[at]), last)
            yield int(order[at]), first - start, stop - start
            first, at = stop, at + 1

    @cached_property
    def _sizes(self) -> Indices:
        return np.array(self.rows, dtype=np.int64)
