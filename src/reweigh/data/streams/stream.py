"""Batches from shards that are never all in memory.

    stream = Stream(open_shards("train"), Fields(("a", "b"), "label"), size=100, seed=0)
    for batch in stream.batches(step, workers=4):        # without end, from any step
        ledger.record(batch.ids, step.weights)
    for batch in stream.epoch(e, workers=4):             # every example once

Batch t is a pure function of (shards, fields, size, seed, lanes, buffer, t): see `read_order`. The ranks
divide the lanes among them, and so do the workers of a rank. As a torch `IterableDataset` under a
DataLoader of your own (`batch_size=None`), an item is one worker's part of a batch, worker after worker.
Memory: `buffer` rows that are not decoded yet, over all lanes, and one piece of the file of each lane.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice, zip_longest
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ...errors import DataError, SettingError
from .fields import BadRow, Fields
from .read_order import ReadOrder
from .row_arrays import ID, Rows, cut, joined, row_count, taken
from .shards import Shards

LANES, BUFFER = 8, 16_384


class Drawn(NamedTuple):
    """A batch, or the part of it that one worker read: inputs [n, ...], targets [n], ids [n]."""

    inputs: Tensor
    targets: Tensor
    ids: Tensor


class Stream(IterableDataset[Drawn]):
    """Batches of `size` over all ranks, and of each batch the part of this rank.

    lanes     places of the data that are read at once: a multiple of `world`. By default the
              smallest multiple from 8 up, so that 1, 2, 4 and 8 ranks see the same batches.
    buffer    rows held for shuffling, over all lanes
    rank, world    of torch.distributed where it is running
    """

    def __init__(
        self,
        shards: Shards,
        fields: Fields,
        *,
        size: int = 100,
        seed: int = 0,
        lanes: int | None = None,
        buffer: int = BUFFER,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        super().__init__()
        shards.require(*fields.names)
        running_rank, running_world = _ranks()
        self.rank = running_rank if rank is None else rank
        self.world = running_world if world is None else world
        if not 0 <= self.rank < self.world:
            raise SettingError(f"rank is {self.rank}; expected 0 ... {self.world - 1}")
        lanes = -(-LANES // self.world) * self.world if lanes is None else lanes
        if lanes % self.world or size % self.world:
            raise SettingError(
                f"{lanes} lanes and batches of {size} cannot be shared equally by {self.world} "
                f"processes; take multiples of {self.world}"
            )
        self.shards, self.fields = shards, fields
        self.order = ReadOrder(shards.rows, size, lanes, buffer, seed)
        self._start = (0, 0, True)  # epoch, step, whether it ends with the epoch

    @property
    def steps(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self.shards) // self.order.size)

    def batches(self, step: int = 0, *, workers: int = 0) -> Iterator[Drawn]:
        """Full batches without end, from number `step` on."""
        return self._from((0, step, False), workers)

    def epoch(self, epoch: int, *, step: int = 0, workers: int = 0) -> Iterator[Drawn]:
        """Every example once, from batch number `step` of the epoch on; the last may be smaller."""
        return self._from((epoch, step, True), workers)

    def set_epoch(self, epoch: int, *, step: int = 0) -> None:
        """What the next pass of a DataLoader over this gives."""
        self._start = (epoch, step, True)

    def _from(self, start: tuple[int, int, bool], workers: int) -> Iterator[Drawn]:
        mine = self.order.lanes_of(self.rank, self.world)
        workers = min(workers, len(mine))
        if workers == 0:
            yield from self._parts(mine, start)
            return
        before, self._start = self._start, start
        loader = DataLoader(
            self,
            batch_size=None,
            num_workers=workers,
            generator=torch.Generator(),  # its own: no number is taken from the global one
            worker_init_fn=_ignore_interrupts,
        )
        parts = iter(loader)
        self._start = before
        try:
            # Workers give their parts one after the other: one part of each makes a batch.
            while batch := list(islice(parts, workers)):
                yield Drawn(*map(torch.cat, zip(*batch, strict=True)))
        except DataError as error:
            # The loader wraps it in the worker's traceback; its last line is the error's own.
            raise DataError(str(error).splitlines()[-1].partition(": ")[2]) from None

    def __iter__(self) -> Iterator[Drawn]:
        mine, worker = self.order.lanes_of(self.rank, self.world), get_worker_info()
        if worker is not None:
            low, high = (len(mine) * k // worker.num_workers for k in (worker.id, worker.id + 1))
            mine = mine[low:high]
        return self._parts(mine, self._start)

    def _parts(self, lanes: range, start: tuple[int, int, bool]) -> Iterator[Drawn]:
        """What `lanes` give to each batch, joined."""
        epoch, step, ends = start
        shares = {lane: self.order.share(lane) for lane in lanes}
        pieces = [cut(self._lane(k, epoch, step * n, ends), n) for k, n in shares.items()]
        # All lanes end within one batch; those that ended are skipped.
        for parts in zip_longest(*pieces):
            rows = joined([piece for piece in parts if piece is not None])
            yield decoded(rows, self.shards, self.fields)

    def _lane(self, lane: int, epoch: int, visit: int, ends: bool) -> Iterator[Rows]:
        """The rows of a lane, from its row number `visit` on, counted from the beginning of `epoch`."""
        low, high = self.order.stretch(lane)
        later, inside = divmod(visit, high - low)
        for now in count(epoch + later):
            if ends and now > epoch:
                return
            block, skip = divmod(inside, self.order.block)
            rows = self._read(now, low + block * self.order.block, high)
            for number, piece in enumerate(cut(rows, self.order.block), start=block):
                order = self.order.shuffle(now, lane, number, row_count(piece))
                yield taken(piece, order[skip:])
                skip = 0
            inside = 0

    def _read(self, epoch: int, first: int, last: int) -> Iterator[Rows]:
        for shard, low, high in self.order.runs(epoch, first, last):
            yield from self.shards.read(shard, low, high, self.fields.names)


def decoded(rows: Rows, shards: Shards, fields: Fields) -> Drawn:
    """Rows as tensors."""
    with _named(rows, shards):
        inputs = torch.from_numpy(fields.decode(rows))
    return Drawn(inputs, labelled(rows, shards, fields), torch.from_numpy(rows[ID]))


def labelled(rows: Rows, shards: Shards, fields: Fields) -> Tensor:
    """The targets of rows, without their inputs."""
    with _named(rows, shards):
        return torch.from_numpy(fields.labels(rows))


@contextmanager
def _named(rows: Rows, shards: Shards) -> Iterator[None]:
    """Turn a `BadRow` into an error that names the file and the row."""
    try:
        yield
    except BadRow as bad:
        where = shards.where(int(rows[ID][bad.position]))
        raise DataError(f"{where}: {bad.what}; mend the row or leave it out of the shard") from None


def _ignore_interrupts(worker: int) -> None:
    """Leave Ctrl-C to the process that trains: it may still want this worker's part of a batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ranks() -> tuple[int, int]:
    """This process's rank and the number of processes."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
