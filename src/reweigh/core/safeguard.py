"""A safeguard: steps are shortened until the way they lead is a way down for the next clean batch.

The literal rule always hands out a full-sized step, because its weights sum to one. How long a step
may be depends on the learning rate, the optimizer and the curvature, which a rule for weights does not
know. So steps are judged afterwards, by a gradient that is computed anyway: that of the next clean
batch, at the place they have led to.

    last step   j = < grad G(theta_t), theta_t - theta_{t-1} >
    way         k = < grad G(theta_t), theta_t - mean_t >
    mean        of the places so far, the latest most: mean_{t+1} = mean_t + min(1, 5/t) (theta_t - mean_t),
                which looks back over about the last fifth of the run

j is the slope of the clean loss at the end of the last step, along that step; k is the slope along the
way that training has come of late. A clean batch that is a sample of the clean set is another one than
the steps were made for: then this is a test on examples that were not asked. What the optimizer makes
of a gradient (momentum, Adam's division, decay) is in where the parameters went.

    trust       u, at first the safe step min(1, <grad G, d> / (2 |d|^2)), at least 1/100
                k > 0: u falls by 5%
                k < 0 and j < 0: u grows by 5%, up to 1
                k < 0 and j > 0: u stays
    factor      u

Why the way decides: for a convex loss k >= G(theta_t) - G(mean_t). So trust falls, at the latest, when
training is no longer at a better place than its own average, that is, when steps only throw it from side
to side. A single step that overshoots is no reason. Where batches are noisy the last step helps the next
batch hardly more than half of the time while the way still leads down, and cutting it there ends
training early: lengths at which the clean loss falls fastest *now* are too short to go far.

Why a fifth of the run: no number of steps is right for all. At first a single step can destroy a model, so
the way is the last step (t <= 5); late in a run noise has to be averaged out over many. Why the last step
has a say in growth: a step that overshoots says that longer ones would overshoot more.

Why a factor on the gradient reaches Adam, which divides by the size of past gradients: that division
remembers a thousand steps, and the factor moves tenfold in fifty. If the division has caught up, steps
are long again, lead nowhere, and trust falls further. So trust has no lower bound that matters (1e-4).

Nothing here has a unit: scaling or shifting the loss changes nothing. If nothing has moved (several
batches per optimizer step), j is 0 and trust stays. If something else than the optimizer has moved the
parameters, some judgements are wrong. A learning rate under the best one is not made larger, and
full trust takes up to a hundred steps, or more where the clean batch is a small sample.

Cost: two inner products and two copies of at most about `ENTRIES` parameters per step, kept as a part of
the state; no pass, no wait for the device. d is looked at in the first step only. Larger models are
judged by every k-th row of each parameter. If parameters are sharded, two numbers per step are summed over
the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import SettingError, unknown
from .model import Direction, local, norm_squared

RATE = 0.05  # of growth and fall
FIRST, LEAST = 0.01, 1e-4  # the least trust at the first step, and ever
LATEST = 5  # the mean looks back over one part in so many of the run
SAFE = 0.5  # of the clean gradient's projection
ENTRIES = 2**16  # of the parameters that are looked at


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


class NextBatchJudge:
    """factor = trust, which the next clean gradient raises or lowers by the signs of two slopes.

    State: `step`, `trust`; `place`, the parameters at the last step, and `mean`, of those at the steps
    before, as far as they are looked at.
    """

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor for this step."""
        one, stride = torch.ones_like(clean_loss.detach().float()), _stride(direction.parameters)
        with torch.no_grad():
            place = _joined(_rows(direction.parameters, stride))
        if not self._state:
            trust = safe_step(gradient(), slope, direction).clamp(min=FIRST).to(one)
            self._state = {"step": one, "trust": trust, "place": place, "mean": place.clone()}
            return trust.to(slope)
        step, trust, last, mean = self._recalled(place)
        last_step, way = self._slopes(direction, (place - last, place - mean), stride).sign()
        # Nothing has moved: 0. Else down, up, or neither.
        change = torch.where(way > 0, -last_step.abs(), (-last_step).clamp(min=0))
        self._state = {
            "step": step + 1,
            "trust": (trust * (RATE * change).exp()).clamp(LEAST, 1.0),
            "place": place,
            "mean": mean + (LATEST / (step + 1)).clamp(max=1.0) * (place - mean),
        }
        return self._state["trust"].to(slope)

    def _recalled(self, place: Tensor) -> tuple[Tensor, ...]:
        """step, trust, last place, mean; the present place where one is not known: no judgement."""
        known = (self._state.get(name, place) for name in ("place", "mean"))
        last, mean = (old.to(place) if old.shape == place.shape else place for old in known)
        return self._state["step"].to(place), self._state["trust"].to(place), last, mean

    def _slopes(self, direction: Direction, moves: tuple[Tensor, Tensor], stride: int) -> Tensor:
        """[2]: <grad G, move> of each."""
        values = (direction.plain or direction).values
        in_factors = getattr(values, "rows", None)  # clean/low_rank.py
        found = _rows(values, stride) if in_factors is None else in_factors(stride)
        if direction.shares:
            found = [row * share for row, share in zip(found, direction.shares, strict=True)]
        rows = _joined(found)
        # All processes take part in the sum, whatever each of them has loaded.
        return direction.total(torch.stack([torch.dot(rows, move) for move in moves]))

    def state_dict(self) -> dict[str, Tensor]:
        """Two numbers and two places."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state; also from an older one, which had no mean, or no place either."""
        known = ("step", "trust")
        if state and not all(name in state for name in known):
            raise SettingError(
                f"a safeguard's state with {sorted(state)}; expected {', '.join(known)} and more: load "
                f"what `state_dict()` of a Reweighter with the same safeguard has given"
            )
        self._state = {n: state[n] for n in (*known, "place", "mean") if n in state}


def _stride(parameters: Sequence[Tensor]) -> int:
    """Every how many rows are looked at."""
    return max(1, -(-sum(p.numel() for p in parameters) // ENTRIES))


def _rows(values: Sequence[Any], stride: int) -> list[Tensor]:
    """Every stride-th row of each; of a sharded one, of the shard that is here."""
    shards = map(local, values)
    return [shard[::stride] if shard.ndim else shard for shard in shards]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """One after the other: a copy, in float32."""
    return torch.cat([row.detach().reshape(-1).float() for row in rows])


def safe_step(
    gradient: Sequence[Tensor | None],
    slope: Tensor,
    direction: Direction | None = None,
) -> Tensor:
    """min(1, <grad G, d> / (2 |d|^2)), 0 where d vanishes. direction: sums over shards of d, if any."""
    if direction is not None and direction.shares:
        square = direction.inner(gradient, gradient).to(slope)
    else:
        found = [g for g in gradient if g is not None]
        square = norm_squared(found).to(slope.dtype) if found else torch.zeros_like(slope)
        square = square if direction is None else direction.total(square)
    return torch.where(square > 0, SAFE * slope / square.clamp(min=1e-38), 0.0).clamp(0, 1)


def make_safeguard(choice: str | Safeguard | None) -> Safeguard | None:
    """The safeguard of a name; an object or None is taken as it is."""
    if not isinstance(choice, str):
        return choice
    if choice != "auto":
        raise unknown("safeguard", choice, ["auto"])
    return NextBatchJudge()
