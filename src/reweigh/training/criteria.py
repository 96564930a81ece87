"""Criteria: from a model's outputs and the targets to one loss per example.

    outputs [n, classes]      cross_entropy           - log softmax(outputs)[target]
    outputs [n], two classes  binary_cross_entropy    of the logit of the second class
    real targets              squared_error           (output - target)^2

`criterion_for` picks the one that fits a model and a task.

The first two are - log p(target), so they tell whether the model was against a label: p(target) < 1/2, all
other classes together are likelier. Whenever another class is predicted, this is so; with two classes the
two are the same, with more a label can be predicted and have less than a half.
"""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ..core import evaluating
from ..data import AnyTask, BatchOptions, in_order
from ..errors import SettingError
from ..methods import Criterion


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy [n] of logits [n, classes]."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy [n] of logits [n] of the second of two classes."""
    return functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none"
    )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error [n]; the mean over an example's values if it has several."""
    if outputs.shape != targets.shape:
        raise SettingError(
            f"the model gives outputs of shape {tuple(outputs.shape)} for targets "
            f"{tuple(targets.shape)}; expected equal shapes: squeeze the last layer's output"
        )
    errors = functional.mse_loss(outputs, targets, reduction="none")
    return errors.flatten(1).mean(1) if errors.ndim > 1 else errors


def classes_of(task: AnyTask) -> int:
    """The number of classes; 0 in a regression."""
    return 0 if task.train.targets.is_floating_point() else len(task.classes)


def criterion_for(model: nn.Module, task: AnyTask, options: BatchOptions) -> Criterion:
    """The criterion that fits the model's outputs for two train examples."""
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


def against_label(loss: Any, values: Tensor) -> Tensor | None:
    """[n] whether the model was against each label, from its loss; None if losses are not - log p.

    loss    the function that gave them: `plain_losses` names its criterion, a method's own loss does not
    """
    if getattr(loss, "criterion", None) not in (cross_entropy, binary_cross_entropy):
        return None
    return values > math.log(2)
