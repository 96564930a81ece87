"""Figure 3: which weights a model gives to right and to wrong labels on images it has never seen.

    random    a batch of hyper-validation images, noise as it is
    classes   for each class but the background: images of that class alone, a share `rate` of them
              relabelled as background

The weights are those of a training step (core/rule.py). The clean batch is the entire clean set; the
model is in train mode, as in a step.
"""

import torch
from torch import nn
from torch.nn import functional

from ..core import example_scores, per_example, weights_from_scores
from ..data import BatchOptions, Part, Task, background_flip, in_order
from ..results import Json
from ..rng import Draws, derive

loss = per_example(functional.cross_entropy)


def weigh_unseen(
    model: nn.Module, task: Task, options: BatchOptions, *, background: int, rate: float, seed: int
) -> tuple[Json, Json]:
    """Numbers for the table, and every weight: `{"random": [batch], "classes": [batch, ...]}`.

    A batch is `{"right": [...], "wrong": [...]}`, weights that sum to one over both.
    """
    model.train()
    held = task.hyper_validation
    clean = next(in_order(task.clean, size=len(task.clean), options=options))

    def weigh(part: Part) -> Json:
        train = next(in_order(part, size=len(part), options=options))
        weights = weights_from_scores(example_scores(model, loss, train, clean))
        return {
            side: [round(w, 7) for w in weights[which].tolist()]
            for side, which in (("right", ~part.changed), ("wrong", part.changed))
        }

    order = torch.from_numpy(Draws(seed, "weights", "random").permutation(len(held)))
    batches = {
        "random": [weigh(held.take(order[: options.size]))],
        "classes": [
            weigh(_single_class(held, label, options.size, background, rate, seed))
            for label in range(len(task.classes))
            if label != background
        ],
    }
    model.eval()
    return {
        f"{name}_{number}": value
        for name, kind in batches.items()
        for number, value in summary(kind).items()
    }, batches


def summary(batches: list[Json]) -> Json:
    """Shares over all `batches` together.

    wrong_zero, right_zero    of the wrong (right) labels, the share without any weight
    wrong_weight              of all weight, the share on wrong labels
    wrong_labels              of all labels, the wrong ones
    """
    right = [w for batch in batches for w in batch["right"]]
    wrong = [w for batch in batches for w in batch["wrong"]]
    return {
        "wrong_zero": sum(w == 0 for w in wrong) / max(1, len(wrong)),
        "right_zero": sum(w == 0 for w in right) / max(1, len(right)),
        "wrong_weight": sum(wrong) / max(1e-12, sum(wrong) + sum(right)),
        "wrong_labels": len(wrong) / max(1, len(wrong) + len(right)),
    }


def _single_class(
    held: Part, label: int, size: int, background: int, rate: float, seed: int
) -> Part:
    members = torch.nonzero(held.truth == label).flatten()
    order = torch.from_numpy(Draws(seed, "weights", label).permutation(len(members)))
    part = held.take(members[order[:size]])
    flipped = background_flip(
        part.truth,
        rate=rate,
        classes=max(label, background) + 1,
        background=background,
        seed=derive(seed, "weights", label),
    )
    return Part(part.inputs, part.ids, flipped.labels, part.truth)
