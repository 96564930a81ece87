"""What every back-end returns: the losses of one forward pass, their scores, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..model.loss import Batch, Loss
from ..model.parameters import Direction


@dataclass(frozen=True)
class Proof:
    """How far scores miss a plain backward along random factors (backends.py).

    gap:  sum_i r_i score_i - <grad sum_i r_i f_i, v>, summed over the processes that share a batch.
    size: |grad sum_i r_i f_i|^2, likewise: what the gap is small against.
    """

    gap: Tensor
    size: Tensor


@dataclass(frozen=True)
class Alignment:
    """One training forward pass, seen along the clean gradient.

    losses:   [n], detached.
    scores:   [n], signed: the inner products of each example's gradient with the direction.
    weighted: weights [n] -> the scalar sum_i weights_i * losses_i, whose `.backward()` trains the
              model; it belongs to this very pass and costs no second forward.
    proof:    where it was due, still to be judged.
    """

    losses: Tensor
    scores: Tensor
    weighted: Callable[[Tensor], Tensor]
    proof: Proof | None = None


# What a back-end may remember of a model from one call to the next, such as where the examples lie
# in each layer's output. The caller owns it; an empty one makes the back-end find out, and check.
Memory = dict[Any, Any]

# model, loss, train batch, direction, memory -> Alignment
Backend = Callable[[nn.Module, Loss, Batch, Direction, Memory], Alignment]
