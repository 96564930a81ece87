"""One step: the model is updated once, from one pair of batches.

pair -> view -> weighed = method.weigh(view, method.losses) -> backward -> clip -> optimizer
                                                                           -> ledger
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..audit import Ledger
from ..data import Batch, Pair
from ..methods import Method, View, Weighed


@dataclass(frozen=True)
class Trainer:
    """What a step works with: `model` and `optimizer` as Accelerate has prepared them."""

    accelerator: Any
    model: nn.Module
    optimizer: Any
    method: Method
    ledger: Ledger | None
    accumulate: int = 1
    clip: float | None = None

    def step(self, pair: Pair, *, step: int, learning_rate: float) -> list[Weighed]:
        """Train on one pair: one update, accumulated over `accumulate` pieces of the train batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        pieces = []
        for train, ids in cut(pair, self.accumulate):
            with self.accelerator.accumulate(self.model):
                view = View(self.model, train, pair.clean, ids, step, learning_rate)
                weighed = self.method.weigh(view, self.method.losses)
                self.accelerator.backward(weighed.loss)
            if self.accelerator.sync_gradients:
                if self.clip is not None:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
                self.optimizer.step()
                self.optimizer.zero_grad()
            if self.ledger is not None:
                self.ledger.record(ids, weighed.weights, weighed.scores, weighed.losses)
            pieces.append(weighed)
        return pieces


def cut(pair: Pair, pieces: int) -> Iterator[tuple[Batch, Tensor]]:
    """The train batch in equal pieces, with the ids [n / pieces] of each."""
    if pieces == 1:
        yield pair.train, pair.train_ids
        return
    size = len(pair.train_ids) // pieces
    for start in range(0, size * pieces, size):
        rows = slice(start, start + size)
        yield Batch(pair.train.inputs[rows], pair.train.targets[rows]), pair.train_ids[rows]
