"""A safeguard against learning rates at which the literal rule destroys the model.

The literal rule always hands out a full-sized step d = sum_i w_i grad f_i, because the weights sum
to one. With few examples carrying the weight, |d| is several times |grad G|: at a large learning
rate such steps overshoot, the clean loss climbs back, units die, and nothing brings them back.
Lemma 1 of the paper guarantees descent, but for steps bounded by the curvature of the clean loss,
which nobody knows. So it is found out as line searches do, by backtracking, on two facts:

    safe step      c d with c = min(1, <grad G, d> / |d|^2): never further along d than the clean
                   gradient's own projection on it; it shrinks to nothing as grad G does
    trust u        in (0, 1], 1 at first: falls by a tenth at every step that finds the clean loss
                   back up a tenth of the way from its best to its start, else grows by a hundredth

    factor = max(u, c)

While the clean loss behaves, the factor is 1 and the rule is the paper's, to the bit, at no cost.
All quantities are free of units: scaling or shifting the loss changes nothing. A hundred steps of
trouble leave only the safe step; a few hundred quiet ones restore full trust.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import unknown
from .parameters import Direction, dot

MEMORY = 0.9  # of the smoothed clean loss: about ten steps, so that one odd batch is no evidence
TOLERANCE = 0.1  # of the way from best to start
FALL, RISE = 0.9, 1.01  # of trust, per step


class Safeguard(Protocol):
    """What `Reweighter(safeguard=...)` takes: a factor in [0, 1] for the gradient of each step."""

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor, a scalar tensor.

        clean_loss: G, before the step. direction: grad G. slope: <grad G, d>, non-negative.
        gradient: call it for d per aligned parameter, if needed (None where there is none).
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """What must be saved to go on as if never stopped."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state."""
        ...


Gradient = Callable[[], Sequence[Tensor | None]]


class Backtracking:
    """factor = max(trust, min(1, <grad G, d> / |d|^2))."""

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor for this step."""
        trust = self._update(clean_loss)
        # Reading the number is free on the CPU and a wait elsewhere, where d is cheap instead.
        if trust.device.type == "cpu" and float(trust) == 1:
            return trust.to(slope.dtype)
        return torch.maximum(trust.to(slope.dtype), safe_step(gradient(), slope))

    def _update(self, clean_loss: Tensor) -> Tensor:
        loss = clean_loss.detach().double() if clean_loss.device.type != "mps" else clean_loss
        if not self._state:
            one = torch.ones_like(loss)
            self._state = {"start": loss, "best": loss, "smooth": loss, "trust": one}
            return one
        start, best = self._state["start"], self._state["best"]
        smooth = MEMORY * self._state["smooth"] + (1 - MEMORY) * loss
        fine = smooth <= best + TOLERANCE * (start - best)
        trust = self._state["trust"] * torch.where(fine, RISE, FALL)
        self._state |= {
            "smooth": smooth,
            "best": torch.minimum(best, smooth),
            "trust": trust.clamp(max=1.0),
        }
        return self._state["trust"]

    def state_dict(self) -> dict[str, Tensor]:
        """Four numbers."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from four numbers."""
        self._state = dict(state)


def safe_step(gradient: Sequence[Tensor | None], slope: Tensor) -> Tensor:
    """min(1, <grad G, d> / |d|^2), 1 where d vanishes."""
    found = [g for g in gradient if g is not None]
    square = dot(found, found).to(slope.dtype) if found else torch.zeros_like(slope)
    return torch.where(square > 0, slope / square.clamp(min=1e-38), 1.0).clamp(0, 1)


def make_safeguard(choice: str | Safeguard | None) -> Safeguard | None:
    """The safeguard of a name; an object or None is taken as it is."""
    if not isinstance(choice, str):
        return choice
    if choice != "auto":
        raise unknown("safeguard", choice, ["auto"])
    return Backtracking()
