"""The tangent of one call, out = func(*args), given those of its arguments.

By the rule that is registered for the operation; any other operation is differentiated by PyTorch's
own forward-mode formula for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as fwd
from torch import Tensor

from ...errors import UnsupportedModelError
from ..torch_internals import OpOverload, autograd_in_handler
from .registry import LINEAR_TANGENTS, TANGENTS, Lookup


def tangent_of_call(func: OpOverload, args: Any, kwargs: Any, out: Any, t: Lookup) -> Any:
    """The tangent of `out = func(*args, **kwargs)`, given those of the arguments."""
    linear = func if func.is_view else LINEAR_TANGENTS.get(func)
    if linear is not None:
        return linear(t(args[0]), *args[1:], **kwargs)
    rule = TANGENTS.get(func)
    if rule is not None:
        return rule(t, out, *args, **kwargs)
    return by_own_formula(func, args, kwargs, t)[1]


def by_own_formula(func: OpOverload, args: Any, kwargs: Any, t: Lookup) -> tuple[Any, Any]:
    """Result and tangent of an operation by PyTorch's own forward-mode formula for it."""
    if is_random(func):
        raise UnsupportedModelError(
            f"{func} draws random numbers and has no tangent rule: add one with "
            f"reweigh.tangent_rule, or use backend='double_backward'"
        )
    if func.namespace != "aten":  # where a missing formula would read as a derivative of zero
        raise UnsupportedModelError(
            f"{func} is a custom operation without a tangent rule: add one with "
            f"reweigh.tangent_rule, or use backend='double_backward'"
        )
    try:
        with autograd_in_handler(), torch.no_grad(), fwd.dual_level():
            out = func(*_dual(args, t), **{name: _dual(value, t) for name, value in kwargs.items()})
            if isinstance(out, (tuple, list)):
                return out, [_tangent_of(value) for value in out]
            return out, _tangent_of(out)
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"{func} has no forward-mode formula: add one with reweigh.tangent_rule, "
            f"or use backend='double_backward'"
        ) from error


def is_random(func: OpOverload) -> bool:
    """Whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _dual(value: Any, t: Lookup) -> Any:
    if isinstance(value, (tuple, list)):
        return [_dual(item, t) for item in value]
    tangent = t(value)
    if tangent is None:
        return value.detach() if isinstance(value, Tensor) else value
    return fwd.make_dual(value.detach(), tangent.to(value.dtype))


def _tangent_of(value: Any) -> Tensor | None:
    return fwd.unpack_dual(value).tangent if isinstance(value, Tensor) else None
