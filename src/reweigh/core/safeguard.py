"""A safeguard: steps are shortened until they help the next clean batch.

The literal rule always hands out a full-sized step, because its weights sum to one. How long a step
may be depends on the learning rate, the optimizer and the curvature, which a rule for weights does not
know. So every step is judged afterwards, by a gradient that is computed anyway: that of the next
clean batch, at the place the step has led to.

    judgement   j = < grad G(theta_t), theta_t - theta_{t-1} >

j is the slope of the clean loss at the end of the last step, along that step. Below zero, the loss
was still falling there: the step could have been longer. Above zero, it was rising again: the step
went too far for the clean examples, or somewhere else. A clean batch that is a sample of the clean set
is another one than the step was made for: then this is a test on examples that were not asked. What
the optimizer makes of a gradient (momentum, Adam's division, decay) is in theta_t - theta_{t-1}.

    trust       u, at first the safe step min(1, <grad G, d> / (2 |d|^2)), at least 1/100
                j > 0: u falls by 5%
                j < 0: u grows by 5%, up to 1, unless the clean loss is back up
    back up     the clean loss, smoothed over ten steps, is over its best by more than the losses
                of single batches deviate from it (root mean square, over ten steps as well)
    best        the lowest smoothed loss; it moves up to the present one over a hundred steps
    factor      u

Why the sign, and why 5% both ways: trust then settles where the last step helps the next clean batch half
of the time. To second order that is the length at which the clean loss falls fastest. If literal
steps help more often than that, trust is 1 and the rule is the paper's, to the bit. Shorter
steps help more often, so trust finds a length that works. Noise brings the signs closer to even, which
makes trust slow, but does not end it: what is noise has no sign on average.

Why the second condition: with a handful of clean examples and a large learning rate, single steps help
while their sum does harm. It only stops growth, and a best that was an accident is forgotten.

Why a factor on the gradient reaches Adam, which divides by the size of past gradients: that division
remembers a thousand steps, and the factor moves tenfold in fifty. If the division has caught up, steps
are long again, fail, and trust falls further. So trust has no lower bound that matters (1e-4).

Nothing here has a unit: scaling or shifting the loss changes nothing. If nothing has moved (several
batches per optimizer step), j is 0 and trust stays. If something else than the optimizer has moved the
parameters, one judgement is wrong. A learning rate under the best one is not made larger, and
full trust takes up to a hundred steps, or more where the clean batch is a small sample.

Cost: one inner product and one copy of at most about `ENTRIES` parameters per step, kept as a part of
the state; no pass, no wait for the device. d is looked at in the first step only. Larger models are
judged by every k-th row of each parameter. If parameters are sharded, one number per step is summed over
the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import SettingError, unknown
from .model import Direction, norm_squared

RATE = 0.05  # of growth and fall
FIRST, LEAST = 0.01, 1e-4  # the least trust at the first step, and ever
SMOOTHING = 10  # steps: one odd batch is no evidence
FORGETTING = 100  # steps: what was never reached again may have been an accident
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
    """factor = trust, which the next clean gradient raises or lowers by the sign of its slope.

    State: `step`, `trust`; `smooth`, `best` and `deviation` (squared) of the clean loss; and `place`,
    the parameters at the last step, as far as they are looked at.
    """

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor for this step."""
        loss, stride = clean_loss.detach().float(), _stride(direction.parameters)
        with torch.no_grad():
            place = _joined(_rows(direction.parameters, stride))
        if self._state:
            judgement = self._judgement(direction, place, stride)
            state = self._updated(loss, judgement.to(loss))
        else:
            trust = safe_step(gradient(), slope, direction.total).clamp(min=FIRST).to(loss)
            zero = torch.zeros_like(loss)
            state = {
                "step": zero + 1, "trust": trust, "smooth": loss, "best": loss, "deviation": zero,
            }  # fmt: skip
        self._state = {**state, "place": place}
        return self._state["trust"].to(slope)

    def _judgement(self, direction: Direction, place: Tensor, stride: int) -> Tensor:
        """<grad G, theta_t - theta_{t-1}>; zero where the last place is not known."""
        last = self._state.get("place")
        if last is None or last.shape != place.shape:
            product = place.new_zeros(())
        else:
            values = (direction.plain or direction).values
            in_factors = getattr(values, "rows", None)  # clean/low_rank.py
            rows = _rows(values, stride) if in_factors is None else in_factors(stride)
            product = torch.dot(_joined(rows), place - last.to(place))
        # All processes take part in the sum, whatever each of them has loaded.
        return direction.total(product) if _sharded(direction.parameters[0]) else product

    def _updated(self, loss: Tensor, judgement: Tensor) -> dict[str, Tensor]:
        names = ("step", "trust", "smooth", "best", "deviation")
        step, trust, smooth, best, deviation = (self._state[name].to(loss) for name in names)
        new = (1 / (step + 1)).clamp(min=1 / SMOOTHING)  # a plain mean at first
        deviation = deviation + new * ((loss - smooth).square() - deviation)
        smooth = smooth + new * (loss - smooth)
        back_up = smooth > best + deviation.sqrt()
        forgotten = torch.minimum(smooth, best + (smooth - best) / FORGETTING)
        sign = judgement.sign()
        change = torch.where((sign < 0) & back_up, 0.0, -RATE * sign)
        return {
            "step": step + 1,
            "trust": (trust * change.exp()).clamp(LEAST, 1.0),
            "smooth": smooth,
            "best": torch.where(step < SMOOTHING, smooth, forgotten),
            "deviation": deviation,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Five numbers and the last place."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state; also from an older one, which had no place and no deviation."""
        known = ("step", "trust", "smooth", "best")
        if state and not all(name in state for name in known):
            raise SettingError(
                f"a safeguard's state with {sorted(state)}; expected {', '.join(known)} and more: load "
                f"what `state_dict()` of a Reweighter with the same safeguard has given"
            )
        names = (*known, "deviation", "place")
        self._state = {name: state[name] for name in names if name in state}
        if state:
            self._state.setdefault("deviation", torch.zeros_like(state["trust"]))


def _stride(parameters: Sequence[Tensor]) -> int:
    """Every how many rows are looked at."""
    return max(1, -(-sum(p.numel() for p in parameters) // ENTRIES))


def _sharded(value: Tensor) -> bool:
    return hasattr(value, "to_local")


def _rows(values: Sequence[Any], stride: int) -> list[Tensor]:
    """Every stride-th row of each; of a sharded one, of the shard that is here."""
    shards = (value.to_local() if _sharded(value) else value for value in values)
    return [shard[::stride] if shard.ndim else shard for shard in shards]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """One after the other: a copy, in float32."""
    return torch.cat([row.detach().reshape(-1).float() for row in rows])


def safe_step(
    gradient: Sequence[Tensor | None],
    slope: Tensor,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """min(1, <grad G, d> / (2 |d|^2)), 0 where d vanishes; `total` sums over shards of d, if any."""
    found = [g for g in gradient if g is not None]
    square = norm_squared(found).to(slope.dtype) if found else torch.zeros_like(slope)
    square = square if total is None else total(square)
    return torch.where(square > 0, SAFE * slope / square.clamp(min=1e-38), 0.0).clamp(0, 1)


def make_safeguard(choice: str | Safeguard | None) -> Safeguard | None:
    """The safeguard of a name; an object or None is taken as it is."""
    if not isinstance(choice, str):
        return choice
    if choice != "auto":
        raise unknown("safeguard", choice, ["auto"])
    return NextBatchJudge()
