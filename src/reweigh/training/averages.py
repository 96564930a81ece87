"""Means over the steps since the last evaluation: the losses, and how even the weights are.

    mean of x = sum over steps of x / number of steps

`Averages` keeps the tensors of each step and adds them up `GROUP` steps at a time. This takes a few
operations per group instead of a dozen per step, and no operation waits for the device. A group that
is not full is saved as it is, so a resumed run adds in the same order and gets the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import effective_sample_size
from ..methods import Weighed

NAMES = ("loss", "effective_sample_size", "zero_share", "clean_batch_loss")
GROUP = 64


class Averages:
    """The means of `NAMES`; `clean_batch_loss` only if the method looked at the clean batch.

    `joined` turns [n, steps] of one process into [all n, steps] of the processes that share the
    batch; None for a single process.
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
        """Add one step, given as the pieces of its batch."""
        for piece in pieces:
            observed = (piece.losses, piece.weights.detach())
            clean = () if piece.clean_loss is None else (piece.clean_loss.detach(),)
            self._group.append(observed + clean)
            if len(self._group) == GROUP:
                self._fold()

    def settle(self) -> None:
        """Add up the open group if processes share a batch: a checkpoint speaks for all of them."""
        if self._joined is not None:
            self._fold()

    def _fold(self, *, already_joined: bool = False) -> None:
        """Add the open group to the sums and empty it."""
        if self._group:
            losses, weights, *clean = (
                torch.stack(x).float() for x in zip(*self._group, strict=True)
            )
            if self._joined is not None and not already_joined:
                losses, weights = (self._joined(x.T.contiguous()).T for x in (losses, weights))
                clean = [self._joined(x.unsqueeze(0)).mean(0) for x in clean]
            zero_share = (weights == 0).float().mean(1)
            means = [losses.mean(1), effective_sample_size(weights), zero_share, *clean]
            self._names = NAMES[: len(means)]
            self._sums[: len(means)] += torch.stack([x.sum() for x in means])
            self._count += len(self._group)
            self._group = []

    def read(self) -> dict[str, float]:
        """The means, after which the sums start again from zero; empty if there was no step."""
        self._fold()
        means = (self._sums / max(1, self._count)).tolist()
        named = dict(zip(self._names, means, strict=False)) if self._count else {}
        self._sums.zero_()
        self._count = 0
        return named

    def state_dict(self) -> dict[str, Any]:
        """The sums and the open group, for a checkpoint."""
        return {
            "sums": self._sums.clone(),
            "count": self._count,
            "names": list(self._names),
            "group": [list(one) for one in self._group],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self._sums.copy_(state["sums"])
        self._count, self._names = int(state["count"]), tuple(state["names"])
        self._group = [tuple(x.to(self._sums.device) for x in one) for one in state["group"]]
        if self._joined is not None:  # a single process saved these: they are full batches already
            self._fold(already_joined=True)
