"""Batch normalisation with the options the published code uses.

    y = scale * (x - mean) / sqrt(var + eps) + shift
    running <- (1 - momentum) * running + momentum * batch

`scale=False` fixes the scale at one. It is kept as a buffer, not dropped: kernels and code that
read `norm.weight` find what they expect, and it is no parameter to count, train or weigh.
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
        """A layer for `channels` channels."""
        layer = nn.BatchNorm2d(channels, eps=self.eps, momentum=self.momentum)
        if not self.scale:
            del layer.weight
            layer.register_buffer("weight", torch.ones(channels))
        return layer


PAPER = Norm()
PUBLISHED_CODE = Norm(scale=False, eps=1e-3, momentum=1e-3)
