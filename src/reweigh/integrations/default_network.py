"""The default network for tables, and the layer that standardises its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """(x - mean) / deviation per column, both of the training rows; a constant column becomes 0."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        wide = rows.double()
        deviation = wide.std(0, correction=0)
        self.register_buffer("mean", wide.mean(0).float())
        self.register_buffer(
            "deviation", torch.where(deviation > 0, deviation, torch.ones_like(deviation)).float()
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Standardise [n, ...]."""
        return (rows - self.mean) / self.deviation


def perceptron(inputs: int, outputs: int, *, hidden: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise([inputs, *hidden, outputs]):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_network(
    module: Callable[[int, int], nn.Module] | None,
    rows: Tensor,
    *,
    outputs: int,
    hidden: Sequence[int],
    standardize: bool,
) -> nn.Module:
    """The user's network for such rows, or the default one; a standardising layer in front if asked."""
    inputs = rows[0].numel()
    network = module(inputs, outputs) if module else perceptron(inputs, outputs, hidden=hidden)
    return nn.Sequential(Standardize(rows), network) if standardize else network
