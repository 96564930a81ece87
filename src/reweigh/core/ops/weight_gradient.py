"""The weight gradients of one call, y = op(x, W):  d loss / d W, given g = d loss / d y.

By the rule that is registered for the operation. An operation without one is run once more and
differentiated by autograd. The input half of its backward is not needed: autograd has done it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..torch_internals import OpOverload, is_mutable
from .registry import WEIGHT_GRADIENTS


def gradients_of_call(
    func: OpOverload, args: Any, kwargs: Any, out: Any, g: Tensor, sources: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradient for each of `sources`, which are among the arguments; None where there is none."""
    rule = WEIGHT_GRADIENTS.get(func)
    if rule is None:
        return _by_autograd(func, args, kwargs, g, sources)
    wanted = {id(source) for source in sources}
    by_argument = rule(lambda x: id(x) in wanted, g, out, *args, **kwargs)
    by_id: dict[int, Tensor] = {}
    for x, gradient in zip(args, by_argument, strict=False):
        if gradient is not None:
            by_id[id(x)] = by_id[id(x)] + gradient if id(x) in by_id else gradient
    return [by_id.get(id(source)) for source in sources]


def _by_autograd(
    func: OpOverload, args: Any, kwargs: Any, g: Tensor, sources: Sequence[Tensor]
) -> list[Tensor | None]:
    leaves = {id(x): x.detach().requires_grad_() for x in sources}

    def swap(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [swap(item) for item in value]
        if isinstance(value, Tensor):
            return leaves.get(id(value), value.detach())
        return value

    with torch.enable_grad():
        swapped = swap(list(args))
        if is_mutable(func):  # the kept input may be needed again
            swapped[0] = swapped[0].clone()
        out = func(*swapped, **{k: swap(v) for k, v in kwargs.items()})
        first = out[0] if isinstance(out, (tuple, list)) else out
        return list(torch.autograd.grad(first, list(leaves.values()), g, allow_unused=True))
