"""Means over the steps since the last evaluation, summed on the device: no step waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core import effective_sample_size
from ..methods import Weighed

NAMES = ("loss", "effective_sample_size", "zero_share", "clean_batch_loss")


class Averages:
    """Of the per-example losses, unweighted, and of what the weights looked like.

    clean_batch_loss is there where the method looked at the clean batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(NAMES), device=device)
        self._count = 0
        self._names: tuple[str, ...] = NAMES

    def add(self, pieces: Sequence[Weighed]) -> None:
        """One step's."""
        for one in pieces:
            weights = one.weights.detach().float()
            values = [
                one.losses.mean().float(),
                effective_sample_size(weights),
                (weights == 0).float().mean(),
            ]
            if one.clean_loss is not None:
                values.append(one.clean_loss.detach().float())
            self._names = NAMES[: len(values)]
            self._sums[: len(values)] += torch.stack(values)
            self._count += 1

    def read(self) -> dict[str, float]:
        """The means; the next ones begin from zero. Empty if there was no step."""
        means = (self._sums / max(1, self._count)).tolist()
        found = dict(zip(self._names, means, strict=False)) if self._count else {}
        self._sums.zero_()
        self._count = 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sums": self._sums.clone(), "count": self._count, "names": list(self._names)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._sums.copy_(state["sums"])
        self._count, self._names = int(state["count"]), tuple(state["names"])
