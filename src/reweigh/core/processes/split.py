"""Parameters that tensor parallelism has cut, of which passes see a part as well.

`parallelize_module` cuts the matrices of a model between processes that all run the same batch. Unlike the
shards of fully_shard they stay cut in a pass: each process multiplies by its part, and what the forward
exchanges are activations. Both can be at work, along different dimensions of a mesh:

    the batch      is shared along the dimensions of fully_shard; along those of tensor parallelism it is the same
    a parameter    is cut along either, both, or none; where it is not cut, every process holds a copy
    a sum over     sum_processes  sum_k  share_k (its part of parameter k),        share_k = 1 / copies of the part
    parameters
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import BatchError, UnsupportedModelError
from ..model import Batch, is_spread, shares, tensors_of
from ..torch_internals import fsdp_groups, split_spec
from .fsdp import parts_of
from .group import Group


def split_mesh(model: nn.Module) -> Any:
    """The mesh along which passes see parts of parameters; None where they see whole ones."""
    if parts := parts_of(model):
        entries = [e for part in parts for group in fsdp_groups(part) for e in group.fsdp_params]
        meshes = [spec.mesh for e in entries if (spec := split_spec(e)) is not None]
    else:
        spread: list[Any] = [p for p in model.parameters() if is_spread(p)]
        meshes = [p.device_mesh for p in spread]
    if any(mesh != meshes[0] for mesh in meshes):
        raise UnsupportedModelError(
            f"{type(model).__name__} has parameters that are cut along several meshes; expected one mesh for "
            f"tensor parallelism: pass the same one to every parallelize_module"
        )
    return meshes[0] if meshes else None


@dataclass(frozen=True)
class Holders:
    """The processes that hold one copy of a model together, and those they share a batch with.

    along: for every dimension of the mesh, the processes that differ from this one along it only.
    """

    along: Sequence[Group]

    @staticmethod
    def of(model: nn.Module, sharing: Group) -> Holders:
        """Of a model that tensor parallelism has cut. sharing: who shares a batch."""
        return Holders([sharing, *_same_batch(model)])

    def total(self, values: Tensor) -> Tensor:
        """Add numbers up over all of them, in place."""
        for group in self.along:
            values = group.summed(values)()
        return values

    def shares(self, parameters: Sequence[Tensor]) -> tuple[float, ...]:
        """How much of its part of each parameter a process counts, so that `total` counts it once."""
        processes = 1
        for group in self.along:
            processes *= group.size
        return shares(parameters, processes)


def _same_batch(model: nn.Module) -> list[Group]:
    """For every dimension of tensor parallelism, the processes along it: all run the same batch."""
    mesh = split_mesh(model)
    handles = [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
    return [Group(dist.get_world_size(h), dist.get_rank(h), False, h) for h in handles]


def require_same_batch(model: nn.Module, train: Batch, clean: Batch, sharing: Group) -> None:
    """Raise, on all processes alike, unless those that run the same batch have been given the same."""
    sums = [_sums(tensor) for tensor in tensors_of((train, clean))]
    differ = _apart(model, torch.stack(sums).sum(0) if sums else torch.zeros(3))
    if sharing.gathered(torch.tensor([float(differ > 0)])).any():
        raise BatchError(
            "the processes between which tensor parallelism has cut the model have different batches; "
            "expected the same train and clean batch on each of them: share the batch along another "
            "dimension of the mesh, with fully_shard"
        )


def require_same_losses(
    model: nn.Module, losses: Tensor, close: float, agreed: Callable[[bool], bool]
) -> None:
    """Raise, on all processes alike, unless those that run the same batch have found the same losses.

    agreed: whether any process has raised a flag.
    """
    size = float(losses.detach().double().abs().sum()) * (1 + len(losses))
    if agreed(_apart(model, _sums(losses)) > close * size):
        raise UnsupportedModelError(
            "the processes between which tensor parallelism has cut the model find different losses for "
            "the same batch; expected the same random numbers where activations are not cut (dropout): "
            "call torch.manual_seed with the same number on each of them"
        )


def _sums(tensor: Tensor) -> Tensor:
    """Three numbers by which a tensor is known again."""
    if tensor.layout != torch.strided or tensor.is_complex():
        return torch.zeros(3, dtype=torch.float64)
    flat = tensor.detach().reshape(-1).double().cpu()
    ramp = torch.arange(1, len(flat) + 1, dtype=torch.float64)
    return torch.stack([torch.tensor(len(flat)).double(), flat.sum(), flat @ ramp])


def _apart(model: nn.Module, numbers: Tensor) -> float:
    """The largest difference in a number between processes that run the same batch; NaN does not count."""
    like: Any = next(p for p in model.parameters() if is_spread(p))
    gaps = [
        rows.amax(0) - rows.amin(0)
        for rows in (group.gathered(numbers.to(like.device)) for group in _same_batch(model))
    ]
    return float(torch.stack(gaps).nan_to_num(0.0).max())


def split_groups(model: nn.Module) -> list[list[int]]:
    """The members of the groups in which the forward of such a model exchanges activations."""
    mesh = split_mesh(model)
    dimensions = range(0 if mesh is None else mesh.ndim)
    return [dist.get_process_group_ranks(mesh.get_group(d)) for d in dimensions]
