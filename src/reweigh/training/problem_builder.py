"""The `Problem` of a phase: what a method may know of the task before training begins."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data import AnyPart, AnyTask, BatchOptions, in_order
from ..methods import Criterion, Problem
from .criteria import classes_of


def build_problem(
    task: AnyTask,
    criterion: Criterion,
    *,
    options: BatchOptions,
    steps: int,
    seed: int,
    device: torch.device,
    pretrained: nn.Module | None = None,
    confusion: Tensor | None = None,
) -> Problem:
    """The problem of one phase of `steps` steps, its tensors on `device`."""
    classes = classes_of(task)
    one_batch = in_order(task.clean, size=max(1, len(task.clean)), options=options, device=device)
    return Problem(
        criterion=criterion,
        classes=classes,
        train_labels=task.train.targets.to(device),
        clean_labels=task.clean.targets.to(device),
        clean=next(iter(one_batch), None),
        steps=steps,
        seed=seed,
        right_share=_right_share(task.train, classes).to(device) if classes else None,
        pretrained=pretrained,
        confusion=confusion,
    )


def _right_share(train: AnyPart, classes: int) -> Tensor:
    """[classes] the share of right labels among those given each class; 1 if no label was given."""
    given = torch.bincount(train.targets, minlength=classes)
    right = torch.bincount(train.targets[~train.changed], minlength=classes)
    return torch.where(given > 0, right / given.clamp(min=1), 1.0)
