"""Means over the steps since the last evaluation: of losses, and of what the weights looked like.

Steps are kept as they are and added up `GROUP` at a time: a few operations for all of them instead
of a dozen for each, and none that waits for the device. A group that is not full is saved as it
is, so that a resumed run adds in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import effective_sample_size
from ..methods import Weighed

NAMES = ("loss", "effective_sample_size", "zero_share", "clean_batch_loss")
GROUP = 64


class Averages:
    """`clean_batch_loss` is there where the method looked at the clean batch.

    `joined`: from the [n, steps] of a process to those of all that share the batch.
    """

    def __init__(
        self, device: torch.device, joined: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self._joined = joined
        self._sums = torch.zeros(len(NAMES), device=device)
        self._count = 0
        self._names: tuple[str, ...] = NAMES
        self._group: list[tuple[Tensor, ...]] = []

    def add(self, pieces: Sequence[Weighed]) -> None:
        """One step's."""
        for one in pieces:
            seen = (one.losses, one.weights.detach())
            clean = () if one.clean_loss is None else (one.clean_loss.detach(),)
            self._group.append(seen + clean)
            if len(self._group) == GROUP:
                self._fold()

    def settle(self) -> None:
        """Add up what there is, where processes share a batch: a checkpoint is of all of them."""
        if self._joined is not None:
            self._fold()

    def _fold(self, *, whole: bool = False) -> None:
        if self._group:
            losses, weights, *clean = (
                torch.stack(x).float() for x in zip(*self._group, strict=True)
            )
            if self._joined is not None and not whole:
                losses, weights = (self._joined(x.T.contiguous()).T for x in (losses, weights))
                clean = [self._joined(x.unsqueeze(0)).mean(0) for x in clean]
            means = [
                losses.mean(1),
                effective_sample_size(weights),
                (weights == 0).float().mean(1),
                *clean,
            ]
            self._names = NAMES[: len(means)]
            self._sums[: len(means)] += torch.stack([x.sum() for x in means])
            self._count += len(self._group)
            self._group = []

    def read(self) -> dict[str, float]:
        """The means; the next ones begin from zero. Empty if there was no step."""
        self._fold()
        means = (self._sums / max(1, self._count)).tolist()
        found = dict(zip(self._names, means, strict=False)) if self._count else {}
        self._sums.zero_()
        self._count = 0
        return found

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        group = [list(one) for one in self._group]
        return {
            "sums": self._sums.clone(),
            "count": self._count,
            "names": list(self._names),
            "group": group,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._sums.copy_(state["sums"])
        self._count, self._names = int(state["count"]), tuple(state["names"])
        self._group = [tuple(x.to(self._sums.device) for x in one) for one in state["group"]]
        if self._joined is not None:  # one process's steps are whole batches: nothing to join
            self._fold(whole=True)
