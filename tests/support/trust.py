"""The safeguard's rule as its file describes it, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor


class Trust:
    """The rule in plain numbers, written from its description: every place is remembered."""

    def __init__(self, trust: float, place: Tensor, weights: int = 0) -> None:
        """weights: how many of the parameters are; they come before biases and scales."""
        self.trust, self.weights = trust, weights
        self.places, self.rates = [place.double()], [1.0]
        self.signs: list[float] = []
        self.good: list[tuple[bool, float]] = []  # and how much each counts

    def judge(self, gradient: Tensor, place: Tensor) -> float:
        gradient, place = gradient.double(), place.double()
        weights, others = slice(self.weights), slice(self.weights, None)
        last_step, way = (
            sum(
                float(gradient[part] @ without_shrinking((place - before)[part], place[part]))
                for part in (weights, others)
            )
            for before in (self.places[-1], self.mean())
        )
        rate = min(1.0, 5 / (len(self.places) + 1))
        if last_step != 0:
            self.signs.append(math.copysign(1, way) if way else 0.0)
        evidence = 0.0
        for sign in self.signs:
            evidence = max(0.0, 0.95 * evidence + 0.05 * sign)
        good = last_step < 0 and way < 0 and evidence < 0.05
        if last_step != 0:
            self.good.append((good, rate))
        if last_step != 0 and way > 0 and evidence > 2 * math.sqrt(0.05 / 1.95):
            self.trust *= math.exp(-0.05)
            rate = max(rate, 0.05)
        elif good:
            self.trust *= math.exp(0.05 * self.share_of_good())
        self.trust = min(1.0, max(1e-4, self.trust))
        self.places.append(place)
        self.rates.append(rate)
        return self.trust

    def share_of_good(self) -> float:
        """Weighed as the places are."""
        left, found = 1.0, 0.0
        for good, rate in reversed(self.good):
            found, left = found + left * rate * good, left * (1 - rate)
        return found

    def mean(self) -> Tensor:
        """Each place weighs what it was given when it was new, less what later ones took."""
        left, found = 1.0, 0 * self.places[0]
        for place, rate in zip(reversed(self.places), reversed(self.rates), strict=True):
            found, left = found + left * rate * place, left * (1 - rate)
        return found


def without_shrinking(move: Tensor, place: Tensor) -> Tensor:
    """A move that is towards zero, within 45 degrees, is left with its part across."""
    if not place.any():
        return move
    along = float(move @ place) * place / float(place @ place)
    towards_zero = float(move @ place) < 0 and along.norm() > (move - along).norm()
    return move - along if towards_zero else move


def weights_first(parts: Iterable[Tensor]) -> list[Tensor]:
    """In the order of the safeguard: biases, scales and the like come last."""
    return sorted(parts, key=lambda part: part.ndim < 2)
