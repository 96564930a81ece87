"""What may go wrong in one process of several, and what each of them must then see: "fine" if so."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import reweigh
from reweigh.errors import BatchError, NonFiniteError, UnsupportedModelError
from support.shared_batches import LOSS, Shared


def pair(rank: int, world: int):
    train, clean = Shared().batches(0, world)
    return train[rank], clean[rank]


def whole(world: int):
    return [tuple(map(torch.cat, zip(*part, strict=True))) for part in Shared().batches(0, world)]


class Sometimes(nn.Module):
    """Couples the examples of a batch, in the last process only."""

    def __init__(self, couples: bool) -> None:
        super().__init__()
        self.body, self.couples = Shared().build(), couples

    def forward(self, x):
        out = self.body(x)
        return out - out.mean(0) if self.couples else out


def refused(rank: int, world: int) -> str:
    """A back-end that one process refuses is left by all; asked for, all refuse."""
    model = DistributedDataParallel(Sometimes(rank == 1))
    weigh = reweigh.Reweighter(model, LOSS)
    weigh(*pair(rank, world)).loss.backward()
    assert weigh.backend == "forward_mode", weigh.backend
    with pytest.raises(UnsupportedModelError, match="coupled" if rank == 1 else "process 1 cannot"):
        reweigh.Reweighter(model, LOSS, backend="ghost")(*pair(rank, world))
    return "fine"


def sharded_auto(rank: int, world: int) -> str:
    """Exact where something exact runs; approximate where not, and then it says so and why."""
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
    model = Shared().build()
    fully_shard(model, mesh=mesh)
    weigh = reweigh.Reweighter(model, LOSS)
    weigh(*pair(rank, world)).loss.backward()
    assert weigh.backend == "ghost", weigh.backend.reason
    assert "double_backward needs whole parameters" in weigh.backend.reason
    with pytest.raises(UnsupportedModelError, match="double_backward needs whole parameters"):
        reweigh.Reweighter(model, LOSS, backend="double_backward")(*pair(rank, world))
    model.set_requires_gradient_sync(False)
    with pytest.raises(UnsupportedModelError, match="set_requires_gradient_sync"):
        weigh(*pair(rank, world))
    joint = Shared(model="joint_norm").build()
    fully_shard(joint, mesh=mesh)
    weigh = reweigh.Reweighter(joint, LOSS)
    with pytest.warns(reweigh.errors.ReweighWarning, match="nothing exact can run.*exchanges data"):
        weigh(*pair(rank, world)).loss.backward()
    assert weigh.backend == "finite_difference"
    return "fine"


def sharded_coupled(rank: int, world: int) -> str:
    """A back-end that one process refuses is left by all, in shards as well."""
    from torch.distributed.fsdp import fully_shard

    model = Sometimes(rank == 1)
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (world,)))
    weigh = reweigh.Reweighter(model, LOSS)
    weigh(*pair(rank, world)).loss.backward()
    assert weigh.backend == "forward_mode", weigh.backend.reason
    match = "coupled" if rank == 1 else "another process cannot"
    with pytest.raises(UnsupportedModelError, match=match):
        reweigh.Reweighter(model, LOSS, backend="ghost")(*pair(rank, world))
    return "fine"


def not_finite(rank: int, world: int) -> str:
    """A NaN in one process stops all, in the same step."""
    (x, y), clean = pair(rank, world)
    if rank == 1:
        x = x * torch.nan
    message = "train batch" if rank == 1 else "another process"
    weigh = reweigh.Reweighter(DistributedDataParallel(Shared().build()), LOSS)
    with pytest.raises(NonFiniteError, match=message):
        weigh((x, y), clean)
    return "fine"


def empty_everywhere(rank: int, world: int) -> str:
    train, clean = pair(rank, world)
    none = tuple(t[:0] for t in train)
    weigh = reweigh.Reweighter(DistributedDataParallel(Shared().build()), LOSS)
    with pytest.raises(BatchError, match="the train batch is empty"):
        weigh(none, clean)
    with pytest.raises(BatchError, match="the clean batch is empty"):
        weigh(train, none)
    return "fine"


def by_itself(rank: int, world: int) -> str:
    """group=None: what a process does alone is its own."""
    weights = reweigh.Reweighter(Shared().build(), LOSS, group=None)(*pair(rank, world)).weights
    torch.testing.assert_close(weights.sum(), torch.ones((), dtype=torch.float64))
    return "fine"


def joint_scores(rank: int, world: int) -> str:
    """example_scores of a share are those of the joined batch; wrapped or not."""
    right = reweigh.example_scores(Shared().build(), LOSS, *whole(world), group=None)
    model = Shared().build()
    for wrapped in (model, DistributedDataParallel(model)):
        mine = reweigh.example_scores(wrapped, LOSS, *pair(rank, world))
        torch.testing.assert_close(mine, right[4 * rank : 4 * rank + 4], rtol=1e-9, atol=1e-9)
    return "fine"
