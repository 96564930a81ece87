"""Where a tensor is, as far as it matters (whether reading a number from it makes the host wait), and
in which precision."""

from __future__ import annotations

import torch
from torch import Tensor


def in_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, without the call where there is nothing to do, as there hardly ever is."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def on_host(tensor: Tensor) -> bool:
    """Whether its values can be read at once; elsewhere a step must go on without knowing them."""
    return tensor.device.type == "cpu"
