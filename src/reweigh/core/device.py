"""Where a tensor is, as far as it matters: whether reading a number from it makes the host wait."""

from __future__ import annotations

from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether its values can be read at once; elsewhere a step must go on without knowing them."""
    return tensor.device.type == "cpu"
