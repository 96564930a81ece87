"""Networks with the same initial weights for the same seed, whatever was drawn before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def seeded(build: Callable[[], Network], generator: torch.Generator) -> Network:
    """`build()` under the seed of `generator`; torch's global generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        return build()
