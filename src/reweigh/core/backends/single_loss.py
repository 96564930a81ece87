"""A batch of one example: its score is the definition itself.

    score = < grad f , V >          V: the clean gradient

One example has no other to be told apart from, so that the gradient of a plain backward is all there is.
No back-end is cheaper, and none follows more models. Micro-batches of one are usual where models are large.

Cost: a plain step, and a product of the size of the aligned parameters.
"""

import torch
from torch import Tensor

from ..model import (
    Direction,
    differentiable_losses,
    leading_sizes,
    placed_like,
    trainable,
    unhooked,
    with_gradient,
)
from .base import Alignment, TrainPass


class SingleLoss:
    """Aligns batches that have one loss.

    possible: False once a batch of one row has had several, such as a packed one.
    """

    def __init__(self) -> None:
        self.possible = True

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment | None:
        """The alignment; None, and everything as it was, where the batch has several losses."""
        if not self.possible or leading_sizes(pass_.batch) != {1}:
            return None
        view, start = pass_.view, pass_.view.start
        with torch.enable_grad():
            losses = differentiable_losses(view.model, pass_.loss, pass_.batch, which="train")
        if losses.shape != (1,):
            self.possible = False
            start.restore()
            return None
        theta = list(trainable(view.model).values())
        with unhooked(theta):  # backward() runs the user's hooks, on the update
            found = torch.autograd.grad(losses, theta, allow_unused=True)
        by_id = {
            id(p): placed_like(p, g) for p, g in zip(theta, found, strict=True) if g is not None
        }
        dense = [
            g if g is None or not g.is_sparse else g.to_dense()
            for g in (by_id.get(id(p)) for p in direction.parameters)
        ]
        score = direction.inner(dense, direction.values)
        values, used = losses.detach(), [p for p in theta if id(p) in by_id]

        def weighted(weights: Tensor) -> Tensor:
            return with_gradient(
                torch.dot(weights, values),
                used,
                lambda scale: [by_id[id(p)] * (weights * scale).to(p.dtype) for p in used],
            )

        return Alignment(values, score.reshape(1).to(values.dtype), weighted)
