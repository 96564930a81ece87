"""How good a model is on a part of the data: accuracy, loss, and which class it takes for which.

    confusion[t, p]   number of examples labelled t that the model takes for p
    accuracy          trace / total
    class accuracy    confusion[c, c] / total of row c

All of these come from sums over examples, so several processes can each take a share and add. The
model runs in evaluation mode without a graph; afterwards it has the modes it had before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..core import evaluating
from ..data import AnyPart, BatchOptions, in_order
from ..methods import Criterion

EVALUATION_BATCH = 200
"""Examples per batch in an evaluation."""

Observer: TypeAlias = Callable[[Tensor], None]
"""Called with the outputs [k, ...] of a batch, in the order of the part."""


@dataclass(frozen=True)
class Judged:
    """Sums over a part: `loss`, `count`, and `confusion` [classes, classes], empty in a regression."""

    loss: Tensor
    count: Tensor
    confusion: Tensor

    @property
    def mean_loss(self) -> float:
        """The loss per example, in the units of the criterion: the MSE in a regression."""
        return float(self.loss / self.count)

    @property
    def accuracy(self) -> float:
        """The share of examples classified as labelled."""
        return int(self.confusion.trace()) / int(self.count)

    @property
    def class_accuracy(self) -> list[float | None]:
        """The accuracy for each class; None if the part has no example of it."""
        return [
            int(row[c]) / int(row.sum()) if row.any() else None
            for c, row in enumerate(self.confusion)
        ]


def predicted(outputs: Tensor) -> Tensor:
    """The class [n] of each output: from logits [n, classes], or [n] of the second of two classes."""
    return outputs.argmax(1) if outputs.ndim > 1 else (outputs > 0).long()


def judge(
    model: nn.Module,
    part: AnyPart,
    criterion: Criterion,
    *,
    classes: int,
    options: BatchOptions,
    device: torch.device,
    accelerator: Any = None,
    observe: Observer | None = None,
) -> tuple[Judged, Judged]:
    """The model on `part`: against the given labels, and against the true ones.

    With an accelerator, each process takes a share and all get the sums. `observe` is shown the
    outputs of this process's share.
    """
    if accelerator is not None and accelerator.num_processes > 1:
        part = part.share(accelerator.process_index, accelerator.num_processes)
    sums = [_zeros(classes, device), _zeros(classes, device)]
    with evaluating(model):
        start = 0
        for batch in in_order(part, size=EVALUATION_BATCH, options=options, device=device):
            outputs = model(batch.inputs).float()
            if observe is not None:
                observe(outputs)
            truth = part.truth[start : start + len(outputs)].to(device)
            start += len(outputs)
            for total, labels in zip(sums, (batch.targets, truth), strict=True):
                total["loss"] += criterion(outputs, labels).sum().double()
                total["count"] += len(labels)
                if classes:
                    places = labels * classes + predicted(outputs)
                    total["confusion"] += torch.bincount(places, minlength=classes**2)
    if accelerator is not None and accelerator.num_processes > 1:
        sums = accelerator.reduce(sums, reduction="sum")
    for total in sums:
        total["confusion"] = total["confusion"].view(classes, classes).cpu()
    given, true = (Judged(**total) for total in sums)
    return given, true


def _zeros(classes: int, device: torch.device) -> dict[str, Tensor]:
    real = torch.float32 if device.type == "mps" else torch.float64
    return {
        "loss": torch.zeros((), dtype=real, device=device),
        "count": torch.zeros((), dtype=torch.int64, device=device),
        "confusion": torch.zeros(classes**2, dtype=torch.int64, device=device),
    }
