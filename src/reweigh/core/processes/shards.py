"""Whole values from shards and back, one unit of `fully_shard` at a time.

A unit is what fully_shard gathers together: the parameters of one module that was given to it. Along the
sharded dimension process r of s holds the rows r c to (r + 1) c, with c = ceil(rows / s): the last
ones may hold fewer, or none. So

    gathered    whole value   = the rows of all processes, one after the other
    reduced     shard         = its rows of the mean of whole values over all processes

Cost: one exchange of the size of the unit, and that much memory until the unit is done with. Sums travel in
float32 or wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..torch_internals import (
    fsdp_dimension,
    fsdp_groups,
    fsdp_mesh,
    gather_flat,
    gathered_size,
    reduce_flat,
    whole_parameter,
)
from .fsdp import parts_of
from .group import answered


@dataclass(frozen=True)
class Shard:
    """A trainable parameter of a unit.

    sharded: what an optimizer holds. place: among the aligned parameters; None if it is not.
    """

    sharded: nn.Parameter
    place: int | None
    entry: Any  # of fully_shard's own

    @property
    def whole(self) -> Tensor:
        """The parameter as passes see it: always the same leaf, of which only the memory comes and goes."""
        leaf: Tensor | None = whole_parameter(self.entry)
        return self.sharded if leaf is None else leaf  # no pass has used it yet


class ShardedUnit:
    """The trainable parameters that are gathered together.

    modules: those whose forward needs them. size: how many processes a parameter is cut for; processes: how
    many there are, of which some may hold copies. What tensor parallelism has cut before is a whole value here.
    """

    def __init__(self, shards: Sequence[Shard], group: Any) -> None:
        self.shards, self.modules = list(shards), list(group.modules)
        self._mesh, self._across = fsdp_mesh(group), fsdp_dimension(group)
        self.size = 1 if self._across is None else self._mesh.size(self._across)
        self.processes = self._mesh.size()

    @property
    def aligned(self) -> list[Shard]:
        """Those that scores are measured on."""
        return [shard for shard in self.shards if shard.place is not None]

    def gathered(
        self, shards: Sequence[Shard], values: Sequence[Tensor | None]
    ) -> dict[int, Tensor]:
        """The whole values of some aligned parameters, by place. values: their shards, by place."""
        places = [shard.place for shard in shards if shard.place is not None]
        mine = {place: value for place in places if (value := values[place]) is not None}
        if self.size == 1 or not mine:
            return mine
        lots = [self._lot(shard) for shard in shards]
        sent = torch.cat([lot.padded(v) for lot, v in zip(lots, mine.values(), strict=True)])
        got = sent.new_empty(self.size * len(sent))
        with answered("gather"):
            gather_flat(got, sent, self._mesh.get_group(self._across))
        pieces = got.view(self.size, -1).split([lot.count for lot in lots], dim=1)
        return {
            place: lot.joined(piece) for place, lot, piece in zip(mine, lots, pieces, strict=True)
        }

    def _lot(self, shard: Shard) -> _Lot:
        return _Lot(shard, self.size, self._across)

    def cut(self, shard: Shard, whole: Tensor) -> Tensor:
        """The part of a whole value that this process holds."""
        if self._across is None:
            return whole
        return self._lot(shard).cut(whole, self._mesh.get_local_rank(self._across))

    def reduced(self, shards: Sequence[Shard], wholes: Sequence[Tensor | None]) -> list[Tensor]:
        """Of whole values, one per given shard, the mean over all processes; None counts as zero.

        As the gradient of a sharded parameter: a DTensor like it.
        """
        if not shards:
            return []
        lots = [self._lot(shard) for shard in shards]
        rows = torch.cat(
            [lot.by_process(whole) for lot, whole in zip(lots, wholes, strict=True)], dim=1
        )
        total = rows.new_empty(rows.shape[1]) if self.size > 1 else rows.view(-1)
        with answered("sum"):
            if self.size > 1:
                reduce_flat(total, rows.view(-1), self._mesh.get_group(self._across))
            for dimension in range(self._mesh.ndim):
                if dimension != self._across and self._mesh.size(dimension) > 1:
                    dist.all_reduce(total, group=self._mesh.get_group(dimension))
        total /= self._mesh.size()
        pieces = total.split([lot.count for lot in lots])
        return [lot.as_gradient(piece) for lot, piece in zip(lots, pieces, strict=True)]


class _Lot:
    """How one parameter is cut: `each` rows a process along its sharded dimension, `count` numbers."""

    def __init__(self, shard: Shard, size: int, across: int | None) -> None:
        sharded: Any = shard.sharded
        self._like, self._size = sharded, size
        # The dimensions of fully_shard's mesh are the first ones of a parameter's.
        self._dim = 0 if across is None else sharded.placements[across].dim
        shape = list(gathered_size(shard.entry))
        self._rows = shape.pop(self._dim)
        self._rest = shape
        self._each = -(-self._rows // size)
        self.count = self._each * torch.Size(shape).numel()
        wide = torch.promote_types(sharded.dtype, torch.float32)
        self._wide = wide

    def padded(self, value: Tensor) -> Tensor:
        """A shard as a vector of `count` numbers."""
        flat = value.movedim(self._dim, 0).reshape(-1)
        missing = self.count - flat.numel()
        flat = flat.to(self._wide)
        return torch.cat([flat, flat.new_zeros(missing)]) if missing else flat

    def cut(self, whole: Tensor, rank: int) -> Tensor:
        """The rows that the process of this rank holds."""
        start = min(rank * self._each, self._rows)
        return whole.narrow(self._dim, start, min(self._each, self._rows - start)).clone()

    def joined(self, pieces: Tensor) -> Tensor:
        """The whole value from the [size, count] of all processes."""
        rows = pieces.reshape(self._size * self._each, *self._rest)[: self._rows]
        return rows.movedim(0, self._dim).to(self._like.dtype)

    def by_process(self, whole: Tensor | None) -> Tensor:
        """[size, count]: which numbers of a whole value go to whom."""
        device = self._like.device
        rows = torch.zeros(self._size * self._each, *self._rest, dtype=self._wide, device=device)
        if whole is not None:
            rows[: self._rows] = whole.movedim(self._dim, 0)
        return rows.view(self._size, self.count)

    def as_gradient(self, flat: Tensor) -> Tensor:
        """The gradient of the sharded parameter, from what this process holds of it."""
        mine = self._like.to_local()
        rows = flat[: mine.numel()].view(mine.movedim(self._dim, 0).shape).movedim(0, self._dim)
        return as_shard_of(self._like, rows.to(mine.dtype))


def as_shard_of(sharded: Any, value: Tensor) -> Tensor:
    """The value that this process holds, as a DTensor like the parameter."""
    from torch.distributed.tensor import DTensor  # at the top it would load with `import reweigh`

    made: Tensor = DTensor.from_local(
        value.contiguous(), sharded.device_mesh, sharded.placements, run_check=False,
        shape=sharded.shape, stride=sharded.stride(),
    )  # fmt: skip
    return made


def units_of(model: nn.Module, aligned: Sequence[nn.Parameter]) -> list[ShardedUnit]:
    """The units of a model, in an order that all processes share."""
    places = {id(p): place for place, p in enumerate(aligned)}
    units, seen, found = [], set[int](), set[int]()
    for part in parts_of(model):
        for group in fsdp_groups(part):
            if id(group) in seen:
                continue
            seen.add(id(group))
            shards = [
                Shard(entry.sharded_param, places.get(id(entry.sharded_param)), entry)
                for entry in group.fsdp_params
                if entry.sharded_param.requires_grad
            ]
            found.update(id(shard.sharded) for shard in shards)
            if shards:
                units.append(ShardedUnit(shards, group))
    if not places.keys() <= found:
        raise UnsupportedModelError(
            f"{len(places.keys() - found)} trainable parameters of {type(model).__name__} are in no unit of "
            f"fully_shard (ignored_params=?); expected all of them sharded: freeze those, or shard them"
        )
    return units
