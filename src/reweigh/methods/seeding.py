"""Networks that begin the same for the same seed, whatever was drawn before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def seeded(build: Callable[[], Network], generator: torch.Generator) -> Network:
    """What `build` makes when the global generator starts from this one's seed; it is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        return build()
