"""Batch normalisation with the options of the paper's public code.

    y = scale * (x - mean) / sqrt(var + eps) + shift
    running <- (1 - momentum) * running + momentum * batch

`scale=False` fixes the scale at one. It stays as a buffer, so that kernels and code that read
`norm.weight` still work, but it is not a parameter that would be counted, trained or weighed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Norm:
    """Options of every BatchNorm in a model; TensorFlow's decay is 1 - momentum."""

    scale: bool = True
    eps: float = 1e-5
    momentum: float = 0.1

    def __call__(self, channels: int) -> nn.BatchNorm2d:
        """A batch norm layer for `channels` channels."""
        layer = nn.BatchNorm2d(channels, eps=self.eps, momentum=self.momentum)
        if not self.scale:
            del layer.weight
            layer.register_buffer("weight", torch.ones(channels))
        return layer


PAPER = Norm()
PUBLISHED_CODE = Norm(scale=False, eps=1e-3, momentum=1e-3)
