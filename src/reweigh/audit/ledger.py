"""The ledger: what each training example counted, kept over a run in fixed memory.

Weights are recorded times the number of examples they were shared out among, so that 1 is what an
example counts in plain training, whatever the batch size. With u_t that scaled weight at record t:

    seen             records of the example
    mean_weight      sum_t u_t / seen
    zero_share       share of its records with weight exactly 0
    average_weight   sum_t g^t u_t / sum_t g^t,   g = 2^(1/half_life): recent records count more
    mean_loss        sum_t loss_t / records with a loss
    last_score       its score when it was last recorded with one (the mean, if twice in a batch)

All of it is sums, so a batch may hold an example twice, and ledgers of several processes merge by
adding. Weights and losses are rounded to 2^-24 and added in float64: up to a total of 2^29 no
addition rounds, and neither order nor grouping changes a bit. `average_weight` merges up to rounding.
Cost: about twenty operations on [n] values a step, no wait for the device. Memory: 80 bytes an
example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import BatchError, SettingError

Column = npt.NDArray[Any]
COLUMNS = (
    "index", "given_label", "seen", "mean_weight", "zero_share", "average_weight", "mean_loss",
    "last_score",
)  # fmt: skip
"""The columns of `Ledger.table()` and of `weights.parquet`."""

_UNIT = 2.0**24
_LARGEST = 2.0**29
_SEEN, _ZEROS, _WEIGHT, _RECENT, _RECENT_WEIGHT, _LOSSES, _LOSS = range(7)
_SCORE, _COUNT, _CLOCK = range(3)
_HEADROOM = 512  # powers of two that recent sums may grow before they are scaled down


class Ledger:
    """What `n` training examples counted.

    half_life: records (steps) after which a weight counts half in `average_weight`.

    >>> ledger = Ledger(3)
    >>> ledger.record(torch.tensor([0, 1]), torch.tensor([0.75, 0.25]))
    >>> ledger.record(torch.tensor([0, 2]), torch.tensor([0.0, 1.0]))
    >>> ledger.table()["mean_weight"].tolist()
    [0.75, 0.5, 2.0]
    """

    def __init__(
        self, n: int, *, half_life: float = 1000.0, device: torch.device | str = "cpu"
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
        self._landmark = 0.0  # recent sums are in units of 2^landmark
        self._totals = torch.zeros(n, 7, dtype=torch.float64, device=device)
        self._last = torch.zeros(n, 3, dtype=torch.float64, device=device)

    def __len__(self) -> int:
        return len(self._totals)

    def record(
        self,
        ids: Tensor,
        weights: Tensor,
        scores: Tensor | None = None,
        losses: Tensor | None = None,
        *,
        shared_by: int | None = None,
    ) -> None:
        """One step: example `ids[k]` had `weights[k]`, of weights shared out among `shared_by`.

        All are [n]; `shared_by` is n unless the batch is one process's part of a larger one.
        """
        if not ids.shape == weights.shape or ids.ndim != 1:
            raise BatchError(
                f"ids {tuple(ids.shape)} and weights {tuple(weights.shape)} were recorded; "
                f"expected one id and one weight for each example of a batch"
            )
        device, gain = self._totals.device, self._gain()
        ids = ids.to(device)
        scaled = weights.detach().to(device, torch.float64) * (shared_by or len(weights))
        one = torch.ones_like(scaled)
        rows = [one, (scaled == 0).double(), _exact(scaled), one * gain, scaled * gain]
        if losses is None:
            rows += [torch.zeros_like(one), torch.zeros_like(one)]
        else:
            rows += [one, _exact(losses.detach().to(device, torch.float64))]
        self._totals.index_add_(0, ids, torch.stack(rows, dim=1))
        self._clock += 1
        if scores is not None:
            score = scores.detach().to(device, torch.float64)
            self._last.index_fill_(0, ids, 0)
            self._last.index_add_(0, ids, torch.stack([score, one, one * self._clock], dim=1))

    def _gain(self) -> float:
        """g^clock in units of 2^landmark; the sums are scaled down, exactly, before it overflows."""
        power = self._clock / self.half_life - self._landmark
        if power > _HEADROOM:
            self._rescale(self._landmark + _HEADROOM)
            power -= _HEADROOM
        return float(2.0**power)

    def _rescale(self, landmark: float) -> None:
        self._totals[:, _RECENT : _RECENT_WEIGHT + 1] *= 2.0 ** (self._landmark - landmark)
        self._landmark = landmark

    def like(self) -> Ledger:
        """An empty one for the same examples, at the same point in time."""
        empty = Ledger(len(self), half_life=self.half_life, device=self._totals.device)
        empty._clock, empty._landmark = self._clock, self._landmark
        return empty

    def merge(self, other: Ledger) -> Ledger:
        """Both together, as a new ledger: the records of processes that shared the batches."""
        if len(other) != len(self) or other.half_life != self.half_life:
            raise SettingError(
                f"ledgers of {len(self)} and {len(other)} examples, half-lives {self.half_life:g} "
                f"and {other.half_life:g}; expected ledgers of the same run"
            )
        merged, theirs = self.like(), self.like()
        merged.load_state_dict(self.state_dict())
        theirs.load_state_dict(other.state_dict())
        landmark = max(merged._landmark, theirs._landmark)
        for ledger in (merged, theirs):
            ledger._rescale(landmark)
        merged._totals += theirs._totals
        merged._last = _latest(merged._last, theirs._last)
        merged._clock = max(merged._clock, theirs._clock)
        return merged

    def state_dict(self) -> dict[str, Any]:
        """Everything, on the CPU, for a checkpoint or another process."""
        return {
            "totals": self._totals.to("cpu", copy=True),
            "last": self._last.to("cpu", copy=True),
            "clock": self._clock,
            "landmark": self._landmark,
            "half_life": self.half_life,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()`."""
        if len(state["totals"]) != len(self):
            raise SettingError(
                f"this ledger is of {len(self)} examples, the saved one of "
                f"{len(state['totals'])}; expected the same training set"
            )
        device = self._totals.device
        self._totals = state["totals"].to(device, copy=True)
        self._last = state["last"].to(device, copy=True)
        self._clock = int(state["clock"])
        self._landmark = float(state["landmark"])

    def table(self, labels: Tensor | None = None) -> dict[str, Column]:
        """The columns of the module, one value an example; NaN where there is nothing to tell.

        `labels` are the given ones; without them the column is left out.
        """
        totals, last = self._totals.cpu().numpy(), self._last.cpu().numpy()
        seen = totals[:, _SEEN]
        mean = _quotient(totals[:, _WEIGHT], seen)
        recent = _quotient(totals[:, _RECENT_WEIGHT], totals[:, _RECENT])
        columns: dict[str, Column] = {
            "index": np.arange(len(seen)),
            "seen": seen.astype(np.int64),
            "mean_weight": mean,
            "zero_share": _quotient(totals[:, _ZEROS], seen),
            # So long ago that its recent sums have vanished: all its records are equally old.
            "average_weight": np.where(totals[:, _RECENT] > 0, recent, mean),
            "mean_loss": _quotient(totals[:, _LOSS], totals[:, _LOSSES]),
            "last_score": _quotient(last[:, _SCORE], last[:, _COUNT]),
        }
        if labels is not None:
            columns["given_label"] = labels.cpu().numpy()
        return {name: columns[name] for name in COLUMNS if name in columns}

    @classmethod
    def of(cls, columns: Mapping[str, Column]) -> Ledger:
        """A ledger with that `table`. To look at, not to go on from: when things were is not in it."""
        found = {
            name: torch.from_numpy(np.array(columns[name], dtype=np.float64))
            for name in COLUMNS if name != "given_label"
        }  # fmt: skip
        seen, loss, score = found["seen"], found["mean_loss"], found["last_score"]
        losses = ~loss.isnan() * seen
        ledger = cls(len(seen))
        totals = [
            seen,
            (found["zero_share"] * seen).round(),
            _exact(found["mean_weight"] * seen),
            (seen > 0).double(),
            found["average_weight"],
            losses,
            _exact(loss * losses),
        ]
        ledger._totals = torch.where(seen[:, None] > 0, torch.stack(totals, dim=1), 0.0)
        ledger._totals[losses == 0, _LOSS] = 0
        last = [score.nan_to_num(), (~score.isnan()).double(), torch.zeros_like(seen)]
        ledger._last = torch.stack(last, dim=1)
        return ledger


def _exact(values: Tensor) -> Tensor:
    """Rounded to a multiple of 2^-24, so that sums are exact; what is not finite becomes large."""
    rounded = (values * _UNIT).round_().mul_(1 / _UNIT)
    return rounded.nan_to_num_(nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)


def _latest(mine: Tensor, theirs: Tensor) -> Tensor:
    """Row by row the later one; of the same step, both: an example may be in two parts of a batch."""
    clocks = [x[:, _CLOCK] / x[:, _COUNT].clamp(min=1) for x in (mine, theirs)]
    first, second = (clocks[0] >= clocks[1])[:, None], (clocks[1] >= clocks[0])[:, None]
    return mine * first + theirs * second


def _quotient(numerator: Column, denominator: Column) -> Column:
    found = denominator > 0
    return np.where(found, numerator / np.where(found, denominator, 1), math.nan)
