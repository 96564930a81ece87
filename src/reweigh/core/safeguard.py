"""A safeguard against learning rates at which the literal rule destroys the model.

The literal rule always hands out a full-sized step d = sum_i w_i grad f_i, because the weights sum
to one. At a large learning rate that fails in two ways. Early on, with few examples carrying the
weight, |d| is several times |grad G|: steps overshoot, units die, and nothing brings them back.
Later, when the clean batch is fitted and grad G is all but noise, full-sized steps along what
happens to align with it memorise the wrong labels. Both show in one number, the clean loss, which
climbs back from its best. Lemma 1 of the paper guarantees that it never does, for steps bounded by
the curvature of the clean loss, which nobody knows; so the bound is found out by backtracking:

    safe step   c = min(1, <grad G, d> / (2 |d|^2)): half the clean gradient's own projection on d;
                it shrinks to nothing as grad G does
    trust       u, starting at 1/100; at step t it grows by 1 + 1/t, up to 1, unless the clean loss
                (smoothed over ten steps) is back up by 1/50 of the way from its best to its start:
                then it falls by a tenth
    factor      max(u, c)

While the clean loss behaves, full trust is there after two hundred steps, and the rule is the
paper's, to the bit, at no cost. Trust lost late comes back late: tenfold takes ten times the steps
so far, so that a learning rate that is too large is tried again ever more rarely. Nothing here has
a unit: scaling or shifting the loss changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import unknown
from .model import Direction, norm_squared, on_host

MEMORY = 0.9  # of the smoothed clean loss: about ten steps, so that one odd batch is no evidence
TOLERANCE = 0.02  # of the way from best to start
FIRST, FALL = 0.01, 0.9  # trust at the first step, and what is left of it after a bad one
SAFE = 0.5  # of the clean gradient's projection


class Safeguard(Protocol):
    """What `Reweighter(safeguard=...)` takes: a factor in [0, 1] for the gradient of each step."""

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor, a scalar tensor.

        clean_loss: G, before the step. direction: grad G. slope: <grad G, d>, non-negative.
        gradient: call it for d per aligned parameter, if needed (None where there is none).
        Where processes share a batch all four are the joined batch's, so that all find the same
        factor; d then costs a sum over the processes. Of sharded parameters direction and d are
        shards: `direction.total` adds up over them.
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
    """factor = max(trust, min(1, <grad G, d> / (2 |d|^2)))."""

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor for this step."""
        trust = self._update(clean_loss)
        # Reading the number is free on the CPU and a wait elsewhere, where d is cheap instead.
        if on_host(trust) and float(trust) == 1:
            return trust.to(slope)
        return torch.maximum(trust.to(slope), safe_step(gradient(), slope, direction.total))

    def _update(self, clean_loss: Tensor) -> Tensor:
        loss = clean_loss.detach().float()
        if not self._state:
            self._state = {
                "step": torch.ones_like(loss),
                "start": loss,
                "best": loss,
                "smooth": loss,
                "trust": torch.full_like(loss, FIRST),
            }
            return self._state["trust"]
        start, best, step = (self._state[name] for name in ("start", "best", "step"))
        smooth = MEMORY * self._state["smooth"] + (1 - MEMORY) * loss
        fine = smooth <= best + TOLERANCE * (start - best)
        trust = self._state["trust"] * torch.where(fine, 1 + 1 / (step + 1), FALL)
        self._state = {
            "step": step + 1,
            "start": start,
            "best": torch.minimum(best, smooth),
            "smooth": smooth,
            "trust": trust.clamp(max=1.0),
        }
        return self._state["trust"]

    def state_dict(self) -> dict[str, Tensor]:
        """Five numbers."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from five numbers."""
        self._state = dict(state)


def safe_step(
    gradient: Sequence[Tensor | None],
    slope: Tensor,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """min(1, <grad G, d> / (2 |d|^2)), 1 where d vanishes; `total` sums over shards of d, if any."""
    found = [g for g in gradient if g is not None]
    square = norm_squared(found).to(slope.dtype) if found else torch.zeros_like(slope)
    square = square if total is None else total(square)
    return torch.where(square > 0, SAFE * slope / square.clamp(min=1e-38), 1.0).clamp(0, 1)


def make_safeguard(choice: str | Safeguard | None) -> Safeguard | None:
    """The safeguard of a name; an object or None is taken as it is."""
    if not isinstance(choice, str):
        return choice
    if choice != "auto":
        raise unknown("safeguard", choice, ["auto"])
    return Backtracking()
