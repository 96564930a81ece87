"""The optimizer that a config asks for, over the trainable parameters of a model."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
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
    return _MAKERS[settings.name](groups, settings, learning_rate)


def unwrapped(optimizer: Any, accelerator: Any) -> Any:
    """The optimizer inside Accelerate's wrapper, if the wrapper does nothing for it.

    The wrapper scales half-precision gradients and serves sharded models. It also looks for an
    optional package on the disk twice per step. For a small model this takes longer than the step.
    """
    simple = str(accelerator.distributed_type.value) in ("NO", "MULTI_CPU", "MULTI_GPU")
    return optimizer.optimizer if simple and accelerator.scaler is None else optimizer


def _sgd(groups: Any, settings: Optimizer, rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, nesterov=settings.nesterov)


def _adam(groups: Any, settings: Optimizer, rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=rate)


def _adamw(groups: Any, settings: Optimizer, rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=rate, weight_decay=0.0)


_MAKERS: MappingProxyType[str, Callable[[Any, Optimizer, float], torch.optim.Optimizer]] = (
    MappingProxyType({"sgd": _sgd, "adam": _adam, "adamw": _adamw})
)
