"""Looking at a graph of autograd: what it ends in, and giving a scalar a gradient of our own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...errors import UnsupportedModelError
from ..torch_internals import at_the_end_of_backward, result_metadata

Gradient = Callable[[Tensor], Sequence[Tensor | None]]


REENTRANT_CHECKPOINT = "CheckpointFunctionBackward"  # a node that runs a graph of its own


def hidden_parameters() -> UnsupportedModelError:
    """The error for a graph that does not show the parameters it uses."""
    return UnsupportedModelError(
        "torch.utils.checkpoint with use_reentrant=True hides the parameters inside it from the graph; "
        "expected use_reentrant=False (transformers: gradient_checkpointing_kwargs="
        "{'use_reentrant': False})"
    )


def leaves(node: Any) -> list[Tensor]:
    """Every tensor that a backward pass from a node of the graph would leave a gradient in."""
    found: list[Tensor] = []
    seen: set[Any] = set()
    stack: list[Any] = [node]
    while stack:
        current = stack.pop()
        if current is None or current in seen:
            continue
        seen.add(current)
        if current.name() == REENTRANT_CHECKPOINT:
            raise hidden_parameters()
        variable = getattr(current, "variable", None)
        if isinstance(variable, Tensor):
            found.append(variable)
        stack.extend(following for following, _ in current.next_functions)
    return found


def coarsest(losses: Tensor) -> torch.dtype:
    """The coarsest floating type of what a graph has computed on its way to `losses`."""
    kinds: set[torch.dtype] = {losses.dtype}
    seen: set[Any] = set()
    stack: list[Any] = [losses.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            kinds.update(result.dtype for result in result_metadata(node))
            stack.extend(following for following, _ in node.next_functions)
    return max((k for k in kinds if k.is_floating_point), key=lambda kind: torch.finfo(kind).eps)


def custom_function(losses: Tensor) -> str | None:
    """The name of an autograd.Function of the user's on the way to `losses`; None if there is none."""
    seen: set[Any] = set()
    stack: list[Any] = [losses.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            kind = getattr(node, "_forward_cls", None)
            # PyTorch's own, for hooks of modules and registered operations, are followed.
            if kind is not None and not kind.__module__.startswith("torch."):
                return str(kind.__name__)
            stack.extend(following for following, _ in node.next_functions)
    return None


@contextmanager
def unhooked(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Take gradients without running the hooks registered on the tensors."""
    kept = [(t._backward_hooks, dict(t._backward_hooks)) for t in tensors if t._backward_hooks]
    for hooks, _ in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in kept:
            hooks.update(before)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Gradient, value: Tensor, *inputs: Tensor) -> Tensor:
        ctx.gradient, ctx.inputs_ = gradient, inputs
        return value.clone()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: the gradient of a weighed step cannot be differentiated again; "
                "expected a plain backward(), or use sum(step.weights * losses) of a forward of your own"
            )
        if ctx.gradient is None:
            raise RuntimeError(
                "this step has been through backward() and its activations are freed, also with "
                "retain_graph=True; call the Reweighter again for another backward"
            )
        found = ctx.gradient(scale)
        untouched = [x for x, g in zip(ctx.inputs_, found, strict=True) if g is None]
        ctx.gradient = ctx.inputs_ = None
        _silence(untouched)
        return None, None, *found


def _silence(tensors: Sequence[Tensor]) -> None:
    """Keep the hooks of tensors without a gradient from being called with None, in this backward."""
    kept = [(t._backward_hooks, dict(t._backward_hooks)) for t in tensors if t._backward_hooks]
    if not kept:
        return
    for hooks, _ in kept:
        hooks.clear()

    def restore() -> None:
        for hooks, before in kept:
            hooks.update(before)

    at_the_end_of_backward(restore)


def with_gradient(value: Tensor, inputs: Sequence[Tensor], gradient: Gradient) -> Tensor:
    """The scalar `value`, whose backward calls `gradient(scale)` for one gradient per input.

    It goes through the engine of autograd as any loss does, so accumulation, scaling, clipping and
    hooks on the inputs work; what `gradient` holds is freed by the first backward.
    """
    result: Tensor = _WithGradient.apply(  # type: ignore[no-untyped-call]
        gradient, value.detach(), *inputs
    )
    return result
