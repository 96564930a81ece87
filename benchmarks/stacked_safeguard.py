"""core/safeguard.py for K perceptrons at once; its page says why.

Written from the definition: a move that mostly shrinks the parameters is taken apart into shrinking and rest.
"""

from __future__ import annotations

import torch
from torch import Tensor

Layers = list[Tensor]  # [K, out, in + 1] each: weights and, in the last column, biases
ENTRIES, ROWS, RATE, CHANCE = 2**16, 16, 0.05, 2 * (0.05 / 1.95) ** 0.5


def dot(left: Layers, right: Layers) -> Tensor:
    """[K]."""
    return sum(((x * y).sum((1, 2)) for x, y in zip(left, right, strict=True)), torch.zeros(()))


def looked_at(layers: Layers) -> tuple[Tensor, Tensor]:
    """The entries that are looked at: of weights [K, N], of biases [K, M]."""
    every = -(-sum(x[0].numel() for x in layers) // ENTRIES)
    thinned = [x[:, :: max(1, min(every, x.shape[1] // ROWS))] for x in layers]
    weights, biases = zip(*((x[..., :-1].flatten(1), x[..., -1]) for x in thinned), strict=True)
    return torch.cat(weights, 1), torch.cat(biases, 1)


def slope(
    clean: tuple[Tensor, Tensor], place: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor]
) -> Tensor:
    """[K]: <clean gradient, move>, of weights and of biases; a move that mostly shrinks counts by its rest."""
    found = torch.zeros(())
    for g, x, old in zip(clean, place, before, strict=True):
        move = x - old
        outwards = (move * x).sum(1, keepdim=True)
        shrinking = outwards / (x * x).sum(1, keepdim=True).clamp(min=1e-38) * x
        rest = move - shrinking
        mostly = (outwards < 0) & (
            shrinking.square().sum(1, keepdim=True) > rest.square().sum(1, keepdim=True)
        )
        found = found + (g * torch.where(mostly, rest, move)).sum(1)
    return found


class Trust:
    """The factor of each run, [K]."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, layers: Layers, clean: Layers, d: Layers) -> Tensor:
        place, direction = looked_at(layers), looked_at(clean)
        self.step += 1
        if self.step == 1:
            self.trust = (0.5 * dot(clean, d) / dot(d, d).clamp(min=1e-38)).clamp(0.01, 1)
            self.evidence = self.good = torch.zeros_like(self.trust)
            self.mean = place
        else:
            self._judge(direction, place)
        self.place = place
        return self.trust

    def _judge(self, direction: tuple[Tensor, Tensor], place: tuple[Tensor, Tensor]) -> None:
        last, way = (slope(direction, place, old).sign() for old in (self.place, self.mean))
        self.evidence = (self.evidence + RATE * last.abs() * (way - self.evidence)).clamp(min=0)
        falls = (last != 0) & (way > 0) & (self.evidence > CHANCE)
        grows = ((last < 0) & (way < 0) & (self.evidence < RATE)).float()
        pace = torch.full_like(self.trust, min(1.0, 5 / self.step))
        self.good = self.good + last.abs() * pace * (grows - self.good)
        change = RATE * (self.good * grows - falls.float())
        self.trust = (self.trust * change.exp()).clamp(1e-4, 1)
        pace = torch.where(falls, pace.clamp(min=RATE), pace).unsqueeze(1)
        weights, biases = (m + pace * (x - m) for m, x in zip(self.mean, place, strict=True))
        self.mean = weights, biases
