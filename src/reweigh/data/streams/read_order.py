"""In which order the rows of many shards are read: a bounded shuffle, the same for any number of readers.

    epoch e          the shards in an order keyed by (seed, e), one after the other: N rows
    lane l of L      a stretch of that order, of N s_l / n rows, where s_l = n (l+1) // L - n l // L.
                     Its rows are read in order, and each block of buffer // L rows is shuffled,
                     keyed by (seed, e, l, block)
    batch t of n     the next s_l rows of every lane, lane by lane

Ranks and workers divide the lanes among them, never the order: batch t is the same for one process
as for eight, and its rows come from L places of the data. The epochs of a lane follow each other
without a gap, so a batch is always full. All of it is a pure function of t: resuming needs only t.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...errors import SettingError
from ...rng import Draws, Indices


@dataclass(frozen=True)
class ReadOrder:
    """`rows` of each shard; batches of `size`; `lanes` lanes; a `buffer` of rows over all lanes."""

    rows: tuple[int, ...]
    size: int
    lanes: int
    buffer: int
    seed: int

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("lanes", self.lanes), ("buffer", self.buffer)):
            if value < 1:
                raise SettingError(f"{name} is {value}; expected a whole number from 1 up")
        if self.size < self.lanes:
            raise SettingError(
                f"a batch of {self.size} from {self.lanes} lanes; expected an example of each: take "
                "a larger batch or fewer lanes"
            )
        if sum(self.rows) < self.size:
            raise SettingError(
                f"a batch of {self.size} from {sum(self.rows)} rows; take a smaller batch"
            )

    @property
    def block(self) -> int:
        """How many rows of a lane are shuffled together."""
        return max(1, self.buffer // self.lanes)

    def share(self, lane: int) -> int:
        """How many rows a lane gives to a batch."""
        return self._edge(lane + 1) - self._edge(lane)

    def stretch(self, lane: int) -> tuple[int, int]:
        """Where a lane lies in the order of an epoch: from row, to row."""
        total = sum(self.rows)
        low, high = (self._edge(k) * total // self.size for k in (lane, lane + 1))
        return low, high

    def _edge(self, lane: int) -> int:
        return self.size * lane // self.lanes

    def lanes_of(self, rank: int, world: int) -> range:
        """The lanes that one rank reads."""
        return range(rank * self.lanes // world, (rank + 1) * self.lanes // world)

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
