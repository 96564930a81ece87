"""What a method may know: the `Problem` that a task, a config and a model's outputs amount to."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data import AnyPart, AnyTask, BatchOptions, in_order
from ..errors import SettingError
from ..methods import Criterion, Problem
from .evaluation import evaluating

ModelFactory = Callable[[], nn.Module]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of logits [n, classes]; [n]."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of logits [n] of the second class; [n]."""
    return functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none"
    )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Averaged over whatever an example has more than one of; [n]."""
    if outputs.shape != targets.shape:
        raise SettingError(
            f"the model gives outputs of shape {tuple(outputs.shape)} for targets "
            f"{tuple(targets.shape)}; expected equal shapes: squeeze the last layer's output"
        )
    errors = functional.mse_loss(outputs, targets, reduction="none")
    return errors.flatten(1).mean(1) if errors.ndim > 1 else errors


def make_seeded(make_model: ModelFactory, seed: int) -> nn.Module:
    """A new model, the same for the same seed."""
    torch.manual_seed(seed)
    return make_model()


def classes_of(task: AnyTask) -> int:
    """How many; 0 in a regression."""
    return 0 if task.train.targets.is_floating_point() else len(task.classes)


def criterion_for(model: nn.Module, task: AnyTask, options: BatchOptions) -> Criterion:
    """The loss that the model's outputs ask for: see the functions above."""
    sample = next(iter(in_order(task.train.head(2), options=options)))
    with evaluating(model):
        outputs = model(sample.inputs)
    classes = classes_of(task)
    if classes == 0:
        return squared_error
    if outputs.ndim == 1 and classes == 2:
        return binary_cross_entropy
    if outputs.ndim == 2 and outputs.shape[1] >= classes and outputs.shape[1] > 1:
        return cross_entropy
    raise SettingError(
        f"the model gives outputs of shape {tuple(outputs.shape)} for {len(sample.targets)} examples "
        f"of {classes} classes; expected [n, {classes}] logits, or [n] for two classes"
    )


def describe(
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
    """The problem of one phase."""
    classes = classes_of(task)
    whole_clean = in_order(task.clean, size=max(1, len(task.clean)), options=options, device=device)
    return Problem(
        criterion=criterion,
        classes=classes,
        train_labels=task.train.targets.to(device),
        clean_labels=task.clean.targets.to(device),
        clean=next(iter(whole_clean), None),
        steps=steps,
        seed=seed,
        right_share=_right_share(task.train, classes).to(device) if classes else None,
        pretrained=pretrained,
        confusion=confusion,
    )


def _right_share(train: AnyPart, classes: int) -> Tensor:
    """Of each class, the share of its labels that are right; 1 where none was given."""
    given = torch.bincount(train.targets, minlength=classes)
    right = torch.bincount(train.targets[~train.changed], minlength=classes)
    return torch.where(given > 0, right / given.clamp(min=1), 1.0)
