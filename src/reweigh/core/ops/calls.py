"""What one call y = op(x, W) adds to a pass: its tangent t(y), and its weight gradients d loss / d W.

Each by the rule that is registered for the operation. An operation without one is differentiated by
PyTorch: its tangent by the forward-mode formula, its weight gradients by running it once more under
autograd. The input half of its backward is not needed then: autograd has done it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as fwd
from torch import Tensor

from ...errors import UnsupportedModelError
from ..model import is_spread
from ..torch_internals import OpOverload, autograd_in_handler, is_mutable, load_forward_formulas
from .registry import LINEAR_TANGENTS, TANGENTS, WEIGHT_GRADIENTS, Lookup

HINT = "add one with reweigh.tangent_rule, or use backend='double_backward'"


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
        raise UnsupportedModelError(f"{func} draws random numbers and has no tangent rule: {HINT}")
    if func.namespace != "aten":  # where a missing formula would read as a derivative of zero
        raise UnsupportedModelError(f"{func} is a custom operation without a tangent rule: {HINT}")

    load_forward_formulas()

    def dual(x: Tensor) -> Tensor:
        tangent = t(x)
        return x.detach() if tangent is None else fwd.make_dual(x.detach(), tangent.to(x.dtype))

    try:
        if any(is_spread(x) and t(x) is not None for x in _tensors((args, kwargs))):
            return _by_two_backwards(func, args, kwargs, t)
        with autograd_in_handler(), torch.no_grad(), fwd.dual_level():
            out = func(*_mapped(args, dual), **_mapped(kwargs, dual))
            if isinstance(out, (tuple, list)):
                return out, [_tangent_of(value) for value in out]
            return out, _tangent_of(out)
    except NotImplementedError as error:
        raise UnsupportedModelError(f"{func} has no forward-mode formula: {HINT}") from error
    except RuntimeError as error:
        if "out of memory" in str(error):
            raise
        func(*args, **kwargs)  # if this raises as well, the call itself is wrong
        raise UnsupportedModelError(
            f"PyTorch's forward-mode formula for {func} fails ({error}): {HINT}"
        ) from error


def _by_two_backwards(func: OpOverload, args: Any, kwargs: Any, t: Lookup) -> tuple[Any, Any]:
    """As `by_own_formula`, for DTensors, for which PyTorch has no forward mode.

    A backward of y with u is J'u, for J = d op / d x. It is linear in u, and its own backward with t(x)
    is J t(x): the tangent.
    """
    leaves: dict[int, tuple[Tensor, Tensor]] = {}

    def leaf(x: Tensor) -> Tensor:
        tangent = t(x)
        if tangent is None:
            return x.detach()
        return leaves.setdefault(id(x), (x.detach().requires_grad_(), tangent))[0]

    with autograd_in_handler(), torch.enable_grad():
        out = func(*_mapped(args, leaf), **_mapped(kwargs, leaf))
        inputs, tangents = zip(*leaves.values(), strict=True)

        def pushed(y: Any) -> Tensor | None:
            if not isinstance(y, Tensor) or not y.requires_grad:
                return None
            u = torch.zeros_like(y, requires_grad=True)
            back = torch.autograd.grad(y, inputs, u, create_graph=True, allow_unused=True)
            pairs = [(g, v) for g, v in zip(back, tangents, strict=True) if g is not None]
            pairs = [(g, v.to(g.dtype)) for g, v in pairs if g.requires_grad]
            if not pairs:
                return None
            pulled, along = zip(*pairs, strict=True)
            return torch.autograd.grad(pulled, u, along, allow_unused=True)[0]

        if isinstance(out, (tuple, list)):
            several = [pushed(y) for y in out]
            return [y.detach() if isinstance(y, Tensor) else y for y in out], several
        return out.detach(), pushed(out)


def is_random(func: OpOverload) -> bool:
    """Whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _tangent_of(value: Any) -> Tensor | None:
    return fwd.unpack_dual(value).tangent if isinstance(value, Tensor) else None


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

    def swap(x: Tensor) -> Tensor:
        return leaves.get(id(x), x.detach())

    with torch.enable_grad():
        swapped = _mapped(args, swap)
        if is_mutable(func):  # the kept input may be needed again
            swapped[0] = swapped[0].clone()
        out = func(*swapped, **_mapped(kwargs, swap))
        first = out[0] if isinstance(out, (tuple, list)) else out
        return list(torch.autograd.grad(first, list(leaves.values()), g, allow_unused=True))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor among the arguments of a call."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Tensor):
        yield value


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The arguments of a call with every tensor changed."""
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_mapped(item, change) for item in value]
    return change(value) if isinstance(value, Tensor) else value
