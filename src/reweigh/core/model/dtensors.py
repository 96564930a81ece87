"""Tensors of which each process holds a part: the DTensors of fully_shard and of tensor parallelism.

A DTensor lies on a mesh of processes. Along each dimension of the mesh it is cut, or copied, or a sum whose
terms are not added up yet (gradients can be). A sum over all numbers of such tensors is

    sum_processes  sum_k  share_k * (sum over the part of tensor k that is here)

with share_k = 1 / (how many processes hold the same part of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """The part that this process holds, sharing memory; a tensor that is whole as it is."""
    part: Any = tensor
    return part.to_local() if is_spread(tensor) else tensor


def is_spread(tensor: Any) -> bool:
    """Whether processes hold parts of a tensor."""
    return hasattr(tensor, "to_local")


def cut_along(tensor: Any) -> list[int]:
    """The dimensions of the mesh along which a tensor is cut; copies lie along the others."""
    return [i for i, placement in enumerate(tensor.placements) if not placement.is_replicate()]


def placed_like(tensor: Any, gradient: Any) -> Any:
    """A gradient of `tensor`, cut as that is: autograd may leave one whose sums are not added up."""
    if not is_spread(gradient) or gradient.placements == tensor.placements:
        return gradient
    return gradient.redistribute(placements=tensor.placements)


def shares(tensors: Sequence[Any], processes: int) -> tuple[float, ...]:
    """1 / (how many of the processes hold the same part), of each tensor."""
    found = []
    for tensor in tensors:
        parts = 1
        for dimension in cut_along(tensor) if is_spread(tensor) else ():
            parts *= tensor.device_mesh.size(dimension)
        found.append(parts / processes)
    return tuple(found)
