"""The optimizer that a config asks for, over the trainable parameters of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .config import Optimizer


def make_optimizer(
    settings: Optimizer, model: nn.Module, learning_rate: float
) -> torch.optim.Optimizer:
    """Over the trainable parameters; weight decay for matrices and kernels, not for vectors."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": trainable}]
    if settings.weight_decay:
        groups = [
            {
                "params": [p for p in trainable if p.ndim > 1],
                "weight_decay": settings.weight_decay,
            },
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
