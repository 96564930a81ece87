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
of a gradient (momentum, Adam's division) is in where the parameters went.

So is weight decay, which is not the rule's doing: it pulls parameters towards zero, usually up the clean
loss, and the shorter the steps, the more of the movement is decay alone. Judged by that, trust falls to
nothing and stays there. Hence a move that is more of a shrinking than of anything else is judged by the rest:

    move        m + c theta  if c |theta| > |m + c theta|,  c = -<m, theta> / |theta|^2;  else m
                weights, and then biases and scales, which decay may spare, each by themselves

    evidence    p, the mean of the signs of k over about the last 20 steps, at least 0:
                p = max(0, p + (sign k - p) / 20)
    good        k < 0, j < 0 and p < 1/20
    q           the share of good steps among those that the mean looks back over:
                q = q + min(1, 5/t) ((1 if good, else 0) - q)
    trust       u, at first the safe step min(1, <grad G, d> / (2 |d|^2)), at least 1/100
                k > 0 and p > CHANCE: u falls by 5%, and the mean moves here by at least 5%
                good: u grows by q 5%, up to 1
                else: u stays
    factor      u

Why evidence: a clean batch is small, augmented or drawn anew, so that one k says little. If ways led nowhere, k
would be positive in half of the steps, and such a mean would be about 0 with a standard deviation of
sqrt(.05 / 1.95). Trust falls if p is above two of them: the way leads up more often than by chance. Good ways
are not saved up as evidence for later (at least 0), since a model can be destroyed within a few steps.

Why the way decides: for a convex loss k >= G(theta_t) - G(mean_t). So trust falls, at the latest, when
training is no longer at a better place than its own average, that is, when steps only throw it from side
to side. A single step that overshoots is no reason. Where batches are noisy the last step helps the next
batch hardly more than half of the time while the way still leads down, and cutting it there ends
training early: lengths at which the clean loss falls fastest *now* are too short to go far.

Why growth is slower where few steps are good: whether a length is too long is known some 20 steps later. If trust
grew as fast as it falls, it would be back at the length that failed just as soon, again and again to the end
of the run, and each time the model is shaken: units die, wrong labels are learnt. Near such a length good steps and
others alternate, and q is small: trust waits. Where nearly all are good, as after the learning rate has been cut, it
grows at full pace.

Why the mean moves when trust falls: short steps cannot lead away from a mean that lies far back. Trust would
fall until the mean has followed, which late in a run takes hundreds of steps. So a new way begins here.

Why a fifth of the run: no number of steps is right for all. At first a single step can destroy a model, so
the way is the last step (t <= 5); late in a run noise has to be averaged out over many. Why the last step
has a say in growth: a step that overshoots says that longer ones would overshoot more.

Why a factor on the gradient reaches Adam, which divides by the size of past gradients: that division
remembers a thousand steps, and the factor moves tenfold in fifty. If the division has caught up, steps
are long again, lead nowhere, and trust falls further. So trust has no lower bound that matters (1e-4).

Nothing here has a unit: scaling or shifting the loss changes nothing. If nothing has moved (several
batches per optimizer step), j is 0, and p, q and trust stay. If something else than the optimizer has moved the
parameters, some judgements are wrong. A learning rate under the best one is not made larger, and
full trust takes up to a hundred steps, or more where the clean batch is a small sample.

Cost: sixteen inner products and two copies of the entries that are looked at, kept as a part of the state; no pass,
no wait for the device. d is looked at in the first step only. A model of up to `ENTRIES` parameters is looked at
as a whole; of a larger one every k-th row of each parameter, so that there are about so many, but `ROWS` rows
of each if it has them: the last layer has one row per class, and some classes alone should not judge. In a large
transformer these rows are most of what is looked at, a few thousandths of the model. If parameters are sharded,
sixteen numbers per step are summed over the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import SettingError, unknown
from .model import Direction, norm_squared

RATE = 0.05  # of growth and fall, and of forgetting evidence
CHANCE = 2 * (RATE / (2 - RATE)) ** 0.5  # the evidence that chance seldom gives
FIRST, LEAST = 0.01, 1e-4  # the least trust at the first step, and ever
LATEST = 5  # the mean looks back over one part in so many of the run
SAFE = 0.5  # of the clean gradient's projection
ENTRIES = 2**16  # that are looked at, if no parameter needs more for
ROWS = 16  # of its rows


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

    State: `step`, `trust`, `evidence` (p), `good` (q); `place`, the parameters at the last step, and `mean`, of
    those at the steps before, as far as they are looked at.
    """

    def __init__(self) -> None:
        self._state: dict[str, Tensor] = {}

    def __call__(
        self, clean_loss: Tensor, direction: Direction, slope: Tensor, gradient: Gradient
    ) -> Tensor:
        """The factor for this step."""
        one, strides = torch.ones_like(clean_loss.detach().float()), _strides(direction.parameters)
        with torch.no_grad():
            place = _joined(_rows(direction.parameters, strides))
        if not self._state:
            trust = safe_step(gradient(), slope, direction).clamp(min=FIRST).to(one)
            self._state = {
                "step": one, "trust": trust, "evidence": 0 * one, "good": 0 * one,
                "place": place, "mean": place.clone(),
            }  # fmt: skip
            return trust.to(slope)
        step, trust, evidence, good, last, mean = self._recalled(place)
        moves = place - last, place - mean
        last_step, way = self._slopes(direction, place, moves, strides).sign()
        # Nothing has moved: last_step is 0, and nothing is judged.
        evidence = self._weighed(evidence, last_step.abs() * (way - evidence))
        falls = (last_step != 0) & (way > 0) & (evidence > CHANCE)
        grows = ((last_step < 0) & (way < 0) & (evidence < RATE)).to(trust)
        pace = (LATEST / (step + 1)).clamp(max=1.0)
        good = good + last_step.abs() * pace * (grows - good)
        change = RATE * (good * grows - falls.to(trust))
        pace = torch.where(falls, pace.clamp(min=RATE), pace)
        self._state = {
            "step": step + 1,
            "trust": (trust * change.exp()).clamp(LEAST, 1.0),
            "evidence": evidence,
            "good": good,
            "place": place,
            "mean": mean + pace * (place - mean),
        }
        return self._state["trust"].to(slope)

    def _recalled(self, place: Tensor) -> tuple[Tensor, ...]:
        """step, trust, p, q, last place, mean; the present place where one is not known: no judgement."""
        known = (self._state.get(name, place) for name in ("place", "mean"))
        last, mean = (old.to(place) if old.shape == place.shape else place for old in known)
        none = torch.zeros_like(self._state["trust"])
        numbers = (self._state.get(name, none) for name in ("step", "trust", "evidence", "good"))
        return *(number.to(place) for number in numbers), last, mean

    @staticmethod
    def _weighed(evidence: Tensor, news: Tensor) -> Tensor:
        return (evidence + RATE * news).clamp(min=0)

    def _slopes(
        self,
        direction: Direction,
        place: Tensor,
        moves: tuple[Tensor, Tensor],
        strides: Sequence[int],
    ) -> Tensor:
        """[2]: <grad G, move> of each, without what shrinks parameters, if that is most of it."""
        values = (direction.plain or direction).values
        in_factors = getattr(values, "rows", None)  # clean/low_rank.py
        rows = _rows(values, strides) if in_factors is None else in_factors(strides)
        gradient, weights = _joined(rows), sum(row.numel() for row in rows if row.ndim > 1)
        parts = (slice(weights), slice(weights, None))  # of what is joined
        pairs = [
            *((v, w) for v in (gradient, place) for w in (*moves, place)),
            *((move, move) for move in moves),
        ]
        if direction.shares:
            counted = _joined(
                [
                    torch.full_like(row, share)
                    for row, share in zip(rows, direction.shares, strict=True)
                ]
            )
            pairs = [(v * counted, w) for v, w in pairs]
        products = torch.stack([torch.dot(v[part], w[part]) for part in parts for v, w in pairs])
        # All processes take part in the sum, whatever each of them has loaded.
        sums = direction.total(products).view(len(parts), -1)
        slopes, along_place, outwards, square, lengths = sums.split([2, 1, 2, 1, 2], dim=1)
        # c |theta| > |m + c theta|: half of |m|^2 or more is along theta, and towards zero.
        shrinks = (outwards < 0) & (2 * outwards.square() > lengths * square)
        judged: Tensor = slopes - torch.where(shrinks, outwards / square, 0.0) * along_place
        return judged.sum(0)

    def state_dict(self) -> dict[str, Tensor]:
        """Four numbers and two places."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state; also from an older one, which lacks some of it."""
        known = ("step", "trust")
        if state and not all(name in state for name in known):
            raise SettingError(
                f"a safeguard's state with {sorted(state)}; expected {', '.join(known)} and more: load "
                f"what `state_dict()` of a Reweighter with the same safeguard has given"
            )
        names = (*known, "evidence", "good", "place", "mean")
        self._state = {name: state[name] for name in names if name in state}


def _strides(parameters: Sequence[Tensor]) -> list[int]:
    """Of each parameter, every how many rows are looked at."""
    wished = -(-sum(p.numel() for p in parameters) // ENTRIES)
    return [max(1, min(wished, len(p) // ROWS)) if p.ndim else 1 for p in parameters]


def _rows(values: Sequence[Any], strides: Sequence[int]) -> list[Tensor]:
    """Every stride-th row of each; of a sharded one, of the shard that is here."""
    shards = [value.to_local() if hasattr(value, "to_local") else value for value in values]
    return [
        shard[::stride] if shard.ndim else shard
        for shard, stride in zip(shards, strides, strict=True)
    ]


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """One after the other, weights first, then biases, scales and the like: a copy, in float32."""
    ordered = sorted(rows, key=lambda row: row.ndim < 2)
    return torch.cat([row.detach().reshape(-1).float() for row in ordered])


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
