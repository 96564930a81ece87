"""A process whose share of a train batch is empty, and which takes part all the same.

It has no losses and no scores; its update is zero for every parameter, which the wrapper of the
model averages with the others'. Where the model's forward exchanges data between processes it runs,
on no examples, so that the others get their answer; elsewhere it need not.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..model import Batch, ModelView, leading_sizes, trainable, with_gradient
from ..torch_internals import BatchNormBase
from .base import Alignment


def is_empty(batch: Batch) -> bool:
    """Whether the batch holds tensors, and no example in them."""
    return leading_sizes(batch) == {0}


def nothing(model: nn.Module) -> Alignment:
    """The alignment of no examples: an update of zero."""
    parameters = list(trainable(model).values())
    none = torch.zeros(0, dtype=parameters[0].dtype, device=parameters[0].device)

    def weighted(weights: Tensor) -> Tensor:
        return with_gradient(
            none.sum(), parameters, lambda scale: [torch.zeros_like(p) for p in parameters]
        )

    return Alignment(none, none, weighted)


@contextmanager
def without_statistics(view: ModelView) -> Iterator[None]:
    """Keep BatchNorm from learning the statistics of no examples, which are not a number."""
    kept = [
        m for m in view.modules
        if isinstance(m, BatchNormBase) and not isinstance(m, nn.SyncBatchNorm) and m.training
    ]  # fmt: skip
    for module in kept:
        module.training = False
    try:
        yield
    finally:
        for module in kept:
            module.training = True
