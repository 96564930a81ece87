"""Criteria: f_i of each example.

The negative log-likelihood is linear in its input. Others PyTorch can differentiate only once, and only
backwards. Row i of the result depends on example i alone. So one call of the backward kernel, with a gradient of
one at every loss, has d f_i / d x_i in the rows of example i, and

    t(f_i) = < d f_i / d x_i , t(x_i) >
"""

from typing import Any

import torch
from torch import Tensor

from .parameterless import NO_PARAMETERS
from .registry import Lookup, Value, aten, operation


@operation(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, lacks=NO_PARAMETERS)
class LogLikelihood:
    """f_i = - x_iy, weighted by class; and the sum of the weights. The rest: weights, reduction, index."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], x: Tensor, target: Tensor, *rest: Any
    ) -> tuple[Value, None]:
        """The same of t(x)."""
        tx = t(x)
        if tx is None:
            return None, None
        call = aten.nll_loss_forward if target.ndim < 2 else aten.nll_loss2d_forward
        return call(tx.to(x.dtype), target, *rest)[0], None


@operation(aten.multi_margin_loss.default, lacks=NO_PARAMETERS)
class MultiMargin:
    """f_i = mean_j max(0, margin - x_iy + x_ij)^p. The rest: p, margin, weights of classes, reduction."""

    @staticmethod
    def tangent(t: Lookup, out: Tensor, x: Tensor, target: Tensor, *rest: Any) -> Value:
        """< d f_i / d x_i, t(x_i) >; summed like the losses where these are reduced."""
        tx = t(x)
        if tx is None:
            return None
        options: list[Any] = [1, 1, None, 1]
        options[: len(rest)] = rest
        slopes: Tensor = aten.multi_margin_loss_backward(torch.ones_like(out), x, target, *options)
        return (slopes * tx).flatten(out.ndim).sum(-1)


@operation(aten._ctc_loss.default, aten._ctc_loss.Tensor, lacks=NO_PARAMETERS)
class TemporalClassification:
    """f_i = - log p(labels of i | x), x of [time, n, classes]; and log alpha, the sums over its paths.

    The rest: lengths of inputs and targets, blank, zero_infinity.
    """

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], x: Tensor, targets: Tensor, *rest: Any
    ) -> tuple[Value, None]:
        """< d f_i / d x_i, t(x_i) >."""
        tx = t(x)
        if tx is None:
            return None, None
        lengths, options = rest[:2], (*rest[2:], *(0, False)[len(rest) - 2 :])
        slopes: Tensor = aten._ctc_loss_backward(
            torch.ones_like(out[0]), x, targets, *lengths, *out, *options
        )
        return (slopes * tx).sum((0, 2)), None
