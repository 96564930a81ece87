"""One step: the model is updated once, from one pair of batches. And the optimizer that does it.

pair -> view -> weighed = method.weigh(view, method.losses) -> backward -> clip -> optimizer
                                                                           -> ledger
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..audit import Ledger
from ..data import Batch, Pair
from ..methods import Method, View, Weighed
from .config import Optimizer
from .criteria import against_label


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
        """Train on one pair: one update, accumulated over `accumulate` pieces of the train batch.

        A method with a `window` hook weighs all pieces as one batch.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        views = [
            View(self.model, train, pair.clean, ids, step, learning_rate)
            for train, ids in cut(pair, self.accumulate)
        ]
        if len(views) > 1 and self.method.window is not None:
            weighed = self.method.window(views, self.method.losses)
            self.accelerator.backward(weighed.loss * self.accumulate)  # which it divides by
            self._update()
            pieces, ids = [weighed], [torch.cat([view.ids for view in views])]
        else:
            pieces, ids = [self._piece(view) for view in views], [view.ids for view in views]
        if self.ledger is not None:
            for rows, one in zip(ids, pieces, strict=True):
                against = against_label(self.method.losses, one.losses)
                self.ledger.record(rows, one.weights, one.scores, one.losses, against=against)
        return pieces

    def _piece(self, view: View) -> Weighed:
        """One piece by itself; the last one of a batch leads to the update."""
        with self.accelerator.accumulate(self.model):
            weighed = self.method.weigh(view, self.method.losses)
            self.accelerator.backward(weighed.loss)
        if self.accelerator.sync_gradients:
            self._update()
        return weighed

    def _update(self) -> None:
        if self.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()


def cut(pair: Pair, pieces: int) -> Iterator[tuple[Batch, Tensor]]:
    """The train batch in equal pieces, with the ids [n / pieces] of each."""
    if pieces == 1:
        yield pair.train, pair.train_ids
        return
    size = len(pair.train_ids) // pieces
    for start in range(0, size * pieces, size):
        rows = slice(start, start + size)
        yield Batch(pair.train.inputs[rows], pair.train.targets[rows]), pair.train_ids[rows]


def make_optimizer(
    settings: Optimizer, model: nn.Module, learning_rate: float
) -> torch.optim.Optimizer:
    """Over the trainable parameters; weight decay for matrices and kernels, not for vectors."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trainable}]
    if settings.weight_decay:
        groups = [
            {"params": [p for p in trainable if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in trainable if p.ndim <= 1]},
        ]
    if settings.name == "sgd":
        return torch.optim.SGD(
            groups, lr=learning_rate, momentum=settings.momentum, nesterov=settings.nesterov
        )
    adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name]
    optimizer: torch.optim.Optimizer = adam(groups, lr=learning_rate, weight_decay=0.0)
    return optimizer


def unwrapped(optimizer: Any, accelerator: Any) -> Any:
    """The optimizer inside Accelerate's wrapper, if the wrapper does nothing for it.

    The wrapper scales half-precision gradients and serves sharded models. It also looks for an
    optional package on the disk twice per step. For a small model this takes longer than the step.
    """
    simple = str(accelerator.distributed_type.value) in ("NO", "MULTI_CPU", "MULTI_GPU")
    return optimizer.optimizer if simple and accelerator.scaler is None else optimizer
