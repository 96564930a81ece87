"""The ledger: what each training example counted, kept over a run in fixed memory.

A weight is multiplied by the number of examples that share the weights, so 1 is what an example
counts in plain training, for any batch size. With u_t this scaled weight at record t:

    seen             number of records of the example
    mean_weight      sum_t u_t / seen
    zero_share       share of its records with weight exactly 0
    average_weight   sum_t g^t u_t / sum_t g^t,   g = 2^(1/half_life): recent records count more
    mean_loss        sum_t loss_t / number of records with a loss
    against_share    share of its records in which the model was against its label; NaN unless all say so
    last_score       its score in the last record that had one (the largest, if twice in that batch)
    mean_weight_j    sum_t u_tj / seen for part j, if the ledger is asked for parts

Where a loss has parts, weights are [n, k]: an example counts what its parts count together, its score is
their sum and its loss their mean.

These are sums and maxima only. So a batch may hold an example twice, and the ledgers of several
processes merge by adding, in any order and grouping, to the same bytes. This needs exact additions:

    weights, losses  are rounded to multiples of 2^-24, in float64: exact up to a total of 2^29
    g^t u_t          = 2^(12 j + s) x with s < 12; x is rounded to a multiple of 2^-20, and 2^s x is
                     added to limb j. The newest limb and the one before it are kept, so a record
                     counts for at least 12 half-lives. Exact up to a total of 2^21 within a limb.

Cost: about twenty operations on [n] values per step, and no wait for the device. Memory: 96 bytes
per example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import BatchError, SettingError

Column = npt.NDArray[Any]
COLUMNS = (
    "index", "given_label", "seen", "mean_weight", "zero_share", "average_weight", "mean_loss",
    "against_share", "last_score",
)  # fmt: skip
"""The columns of `Ledger.table()` and of `weights.parquet`."""

_UNIT = 2.0**24
_LARGEST = 2.0**29
_RECENT_UNIT = 2.0**20
_LIMB = 12  # half-lives per limb
_SEEN, _ZEROS, _WEIGHT, _RECENT, _RECENT_WEIGHT, _LOSSES, _LOSS, _AGAINST, _OLDER, _OLDER_WEIGHT = (
    range(10)
)
_RECORDED = _AGAINST + 1  # a record adds to the columns up to here; the rest is the limb before
_UNKNOWN = -math.inf
"""In place of the records against a label, once a record did not say: whatever is added, it stays."""
_NEWEST, _BEFORE = slice(_RECENT, _RECENT_WEIGHT + 1), slice(_OLDER, _OLDER_WEIGHT + 1)
_SCORE, _CLOCK = range(2)


class Ledger:
    """What each of `n` training examples counted.

    half_life: number of records (steps) after which a weight counts half in `average_weight`.
    parts:     number of parts of an example whose weights are kept one by one; 8 bytes each.

    >>> ledger = Ledger(3)
    >>> ledger.record(torch.tensor([0, 1]), torch.tensor([0.75, 0.25]))
    >>> ledger.record(torch.tensor([0, 2]), torch.tensor([0.0, 1.0]))
    >>> ledger.table()["mean_weight"].tolist()
    [0.75, 0.5, 2.0]
    """

    def __init__(
        self,
        n: int,
        *,
        half_life: float = 1000.0,
        device: torch.device | str = "cpu",
        parts: int = 0,
    ) -> None:
        if n < 1:
            raise SettingError(f"a ledger of {n} examples; expected 1 or more")
        if not half_life >= 1:
            raise SettingError(f"half_life is {half_life}; expected 1 record or more")
        device = torch.device(device)
        if device.type == "mps":  # has no float64
            device = torch.device("cpu")
        self.half_life = float(half_life)
        self._clock = 0  # records so far
        self._limb = 0  # number of the newest limb
        self._totals = torch.zeros(n, _OLDER_WEIGHT + 1, dtype=torch.float64, device=device)
        self._last = torch.zeros(n, 2, dtype=torch.float64, device=device)
        self._parts = torch.zeros(n, parts, dtype=torch.float64, device=device)

    def __len__(self) -> int:
        return len(self._totals)

    def record(
        self,
        ids: Tensor,
        weights: Tensor,
        scores: Tensor | None = None,
        losses: Tensor | None = None,
        *,
        against: Tensor | None = None,
        shared_by: int | None = None,
    ) -> None:
        """Record one step: example `ids[i]` had `weights[i]`; all are [n], all but ids may be [n, k].

        `against` [n]: whether the model was against the example's label; None, or [n, k], is not known.
        `shared_by` is the number of examples whose weights sum to one: n, unless the batch is one
        process's share of a larger one.
        """
        if not ids.shape == weights.shape[:1] or weights.ndim > 2:
            raise BatchError(
                f"ids {tuple(ids.shape)} and weights {tuple(weights.shape)} were recorded; "
                f"expected one id and one weight for each example of a batch, or one for each part"
            )
        device = self._totals.device
        ids = ids.to(device)
        scaled = weights.detach().to(device, torch.float64) * (shared_by or len(weights))
        if scaled.ndim == 2:
            self._record_parts(ids, scaled)
            scaled = scaled.sum(1)
            scores = None if scores is None else scores.detach().sum(1)
            losses = None if losses is None else losses.detach().mean(1)
        one = torch.ones_like(scaled)
        recent = self._recent(torch.stack([one, scaled]))
        rows = [one, (scaled == 0).double(), _exact(scaled), *recent]
        if losses is None:
            rows += [torch.zeros_like(one), torch.zeros_like(one)]
        else:
            rows += [one, _exact(losses.detach().to(device, torch.float64))]
        if against is None or against.ndim > 1:
            rows.append(torch.full_like(one, _UNKNOWN))
        else:
            rows.append(against.to(device, one.dtype))
        self._totals[:, :_RECORDED].index_add_(0, ids, torch.stack(rows, dim=1))
        self._clock += 1
        if scores is not None:
            score = scores.detach().to(device, torch.float64)
            self._last[:, _SCORE].scatter_reduce_(0, ids, score, "amax", include_self=False)
            self._last[:, _CLOCK].index_fill_(0, ids, self._clock)

    def _record_parts(self, ids: Tensor, scaled: Tensor) -> None:
        kept = self._parts.shape[1]
        if kept and kept != scaled.shape[1]:
            raise BatchError(
                f"weights of {scaled.shape[1]} parts an example were recorded in a ledger of {kept}; "
                f"expected Ledger(parts={scaled.shape[1]}), or parts=0 to keep the sums only"
            )
        if kept:
            self._parts.index_add_(0, ids, _exact(scaled))

    def _recent(self, values: Tensor) -> Tensor:
        """`values` times g^clock, in the unit of the newest limb."""
        half_lives, rest = divmod(self._clock / self.half_life, 1)
        limb, shift = divmod(int(half_lives), _LIMB)
        self._move_on(limb)
        return _exact(values * 2.0**rest, _RECENT_UNIT) * 2.0**shift

    def _move_on(self, limb: int) -> None:
        """Make `limb` the newest limb."""
        if limb == self._limb:
            return
        newest = self._totals[:, _NEWEST]
        self._totals[:, _BEFORE] = newest if limb == self._limb + 1 else 0.0
        newest.zero_()
        self._limb = limb

    def like(self) -> Ledger:
        """An empty ledger for the same examples, at the same point in time."""
        empty = Ledger(
            len(self),
            half_life=self.half_life,
            device=self._totals.device,
            parts=self._parts.shape[1],
        )
        empty._clock, empty._limb = self._clock, self._limb
        return empty

    def merge(self, other: Ledger) -> Ledger:
        """A new ledger with the records of both: those of processes that shared the batches."""
        if len(other) != len(self) or other.half_life != self.half_life:
            raise SettingError(
                f"ledgers of {len(self)} and {len(other)} examples, half-lives {self.half_life:g} "
                f"and {other.half_life:g}; expected ledgers of the same run"
            )
        merged, theirs = self.like(), self.like()
        merged.load_state_dict(self.state_dict())
        theirs.load_state_dict(other.state_dict())
        newest = max(merged._limb, theirs._limb)
        for ledger in (merged, theirs):
            ledger._move_on(newest)
        merged._totals += theirs._totals
        merged._parts += theirs._parts
        merged._last = _latest(merged._last, theirs._last)
        merged._clock = max(merged._clock, theirs._clock)
        return merged

    def joined(self, states: Iterable[Mapping[str, Any]]) -> Ledger:
        """A new ledger with the records of several processes, each given as its `state_dict()`."""
        merged = self.like()
        for state in states:
            other = self.like()
            other.load_state_dict(state)
            merged = merged.merge(other)
        return merged

    def state_dict(self) -> dict[str, Any]:
        """Everything, on the CPU, for a checkpoint or another process."""
        return {
            "totals": self._totals.to("cpu", copy=True),
            "last": self._last.to("cpu", copy=True),
            "clock": self._clock,
            "limb": self._limb,
            "half_life": self.half_life,
            "parts": self._parts.to("cpu", copy=True),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`."""
        if len(state["totals"]) != len(self):
            raise SettingError(
                f"this ledger is of {len(self)} examples, the saved one of "
                f"{len(state['totals'])}; expected the same training set"
            )
        if "limb" not in state:
            raise SettingError(
                "the saved ledger was kept by another version; expected one of this: start anew"
            )
        device = self._totals.device
        self._totals = _with_against(state["totals"]).to(device, copy=True)
        self._last = state["last"].to(device, copy=True)
        if "parts" in state:
            self._parts = state["parts"].to(device, copy=True)
        self._clock = int(state["clock"])
        self._limb = int(state["limb"])

    def table(self, labels: Tensor | None = None) -> dict[str, Column]:
        """The columns at the head of this file, [n] each; NaN if an example was never recorded.

        `labels` [n] are the given labels; without them there is no column `given_label`.
        """
        totals, last = self._totals.cpu().numpy(), self._last.cpu().numpy()
        seen = totals[:, _SEEN]
        mean = _quotient(totals[:, _WEIGHT], seen)
        recent = totals[:, _NEWEST] + totals[:, _BEFORE] * 2.0**-_LIMB
        columns: dict[str, Column] = {
            "index": np.arange(len(seen)),
            "seen": seen.astype(np.int64),
            "mean_weight": mean,
            "zero_share": _quotient(totals[:, _ZEROS], seen),
            # If both limbs are empty, all records of the example are old: they count equally.
            "average_weight": np.where(
                recent[:, 0] > 0, _quotient(recent[:, 1], recent[:, 0]), mean
            ),
            "mean_loss": _quotient(totals[:, _LOSS], totals[:, _LOSSES]),
            "against_share": _quotient(
                np.where(np.isfinite(totals[:, _AGAINST]), totals[:, _AGAINST], math.nan), seen
            ),
            "last_score": np.where(last[:, _CLOCK] > 0, last[:, _SCORE], math.nan),
        }
        if labels is not None:
            columns["given_label"] = labels.cpu().numpy()
        each = _quotient(self._parts.cpu().numpy(), seen[:, None])
        return {
            **{name: columns[name] for name in COLUMNS if name in columns},
            **{f"mean_weight_{j}": each[:, j] for j in range(each.shape[1])},
        }

    @classmethod
    def of(cls, columns: Mapping[str, Column]) -> Ledger:
        """A ledger with that `table`, for reading. It cannot continue: the times are not in a table."""
        values = {
            name: torch.from_numpy(np.array(columns[name], dtype=np.float64))
            for name in COLUMNS if name in columns and name != "given_label"
        }  # fmt: skip
        seen, loss, score = values["seen"], values["mean_loss"], values["last_score"]
        losses = ~loss.isnan() * seen
        ledger = cls(len(seen))
        totals = [
            seen,
            (values["zero_share"] * seen).round(),
            _exact(values["mean_weight"] * seen),
            (seen > 0).double(),
            values["average_weight"],
            losses,
            _exact(loss * losses),
            (values["against_share"] * seen).round().nan_to_num(nan=_UNKNOWN),
            torch.zeros_like(seen),
            torch.zeros_like(seen),
        ]
        ledger._totals = torch.where(seen[:, None] > 0, torch.stack(totals, dim=1), 0.0)
        ledger._totals[losses == 0, _LOSS] = 0
        ledger._last = torch.stack([score.nan_to_num(), (~score.isnan()).double()], dim=1)
        return ledger


def _exact(values: Tensor, unit: float = _UNIT) -> Tensor:
    """`values` rounded to multiples of 1/unit, so that sums are exact; NaN and infinity become large."""
    rounded = (values * unit).round_().mul_(1 / unit)
    return rounded.nan_to_num_(nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)


def _with_against(totals: Tensor) -> Tensor:
    """The totals of a saved state; those of earlier versions do not have records against a label."""
    if totals.shape[1] > _OLDER_WEIGHT:
        return totals
    unknown = torch.where(totals[:, _SEEN] > 0, _UNKNOWN, 0.0)[:, None]
    return torch.cat([totals[:, :_AGAINST], unknown, totals[:, _AGAINST:]], dim=1)


def _latest(mine: Tensor, theirs: Tensor) -> Tensor:
    """Row by row the later (score, clock); if both are of the same step, the larger score."""
    later = mine[:, _CLOCK] - theirs[:, _CLOCK]
    either = torch.maximum(mine, theirs)
    return torch.where(
        (later > 0)[:, None], mine, torch.where((later < 0)[:, None], theirs, either)
    )


def _quotient(numerator: Column, denominator: Column) -> Column:
    defined = denominator > 0
    return np.where(defined, numerator / np.where(defined, denominator, 1), math.nan)
