"""In which order examples are visited: an endless sequence, readable from any place.

    Shuffled   epoch e is the permutation keyed by (seed, e); epochs follow each other without a gap
    Balanced   round r visits every class once, in an order keyed by (seed, r); within a class, the
               r-th visit follows that class's own Shuffled order

Both are pure functions of the position, so that resuming needs one number and no generator state.
"""

import numpy as np

from ...errors import SettingError
from ...rng import Draws, Indices


class Shuffled:
    """Positions 0 ... n-1 in a new random order every epoch."""

    def __init__(self, count: int, seed: int, *purpose: str | int) -> None:
        if count < 1:
            raise SettingError("there is no example to draw batches from; expected one at least")
        self.count = count
        self._seed = seed
        self._purpose = purpose
        self._cached: tuple[int, Indices] | None = None

    def _epoch(self, epoch: int) -> Indices:
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, Draws(self._seed, *self._purpose, epoch).permutation(self.count))
        return self._cached[1]

    def read(self, start: int, stop: int) -> Indices:
        """The visits number start ... stop-1."""
        parts = []
        while start < stop:
            epoch, inside = divmod(start, self.count)
            length = min(stop - start, self.count - inside)
            parts.append(self._epoch(epoch)[inside : inside + length])
            start += length
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


class Balanced:
    """Every class that occurs in `labels` equally often, rare ones repeated."""

    def __init__(self, labels: Indices, seed: int, *purpose: str | int) -> None:
        self._classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        self._rounds = Shuffled(len(self._classes), seed, *purpose, "rounds")
        self._within = [
            Shuffled(len(members), seed, *purpose, "class", k)
            for k, members in enumerate(self._classes)
        ]

    def read(self, start: int, stop: int) -> Indices:
        """The visits number start ... stop-1."""
        size = len(self._classes)
        which = self._rounds.read(start, stop)
        rounds = np.arange(start, stop) // size
        visits = np.empty(stop - start, dtype=np.int64)
        for k, members in enumerate(self._classes):
            mine = np.flatnonzero(which == k)
            if len(mine):
                first, last = int(rounds[mine[0]]), int(rounds[mine[-1]])
                # One visit a round: a class's visits are consecutive in its own order.
                visits[mine] = members[self._within[k].read(first, last + 1)]
        return visits
