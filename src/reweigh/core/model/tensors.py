"""Lists of tensors taken as one vector, and where a tensor is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

# Whether the values of a tensor can be read at once. Elsewhere reading makes the host wait for the
# device, so a step must go on without knowing them. (An attrgetter costs no Python call.)
on_host: Callable[[Tensor], bool] = attrgetter("is_cpu")


def dot(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """The inner product of two lists of tensors, summed in float32 or better."""
    terms = [torch.dot(_wide(a), _wide(b)) for a, b in zip(left, right, strict=True)]
    return torch.stack(terms).sum()


def norm_squared(values: Sequence[Tensor]) -> Tensor:
    """The squared length of a list of tensors, in float32 or better."""
    dense = [value.to_dense() if value.is_sparse else value for value in values]
    lengths = torch.stack(torch._foreach_norm(dense))
    return (lengths if lengths.dtype == torch.float64 else lengths.float()).square().sum()


def _wide(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
