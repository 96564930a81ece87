"""How a model runs for the length of a block: in evaluation mode, without backward hooks, or so that it can be
differentiated.

Compiled graphs hide the operations that the back-ends look at, fused attention has no second
derivative and, but for CPUs, no tangent, and fused recurrent layers (oneDNN, cuDNN) hide their steps. Inside the last
two contexts (and `ModelView.plain_recurrence`) they run as written.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..torch_internals import PROCESS_SWITCHES, recomputing_under
from .view import ModelView


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; afterwards every module has the mode it had before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def muted(view: ModelView) -> Iterator[None]:
    """Backward hooks of modules are not called inside; of a forward in here, afterwards they are."""
    muted = True

    def wrapped(hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: None if muted else hook(*arguments)

    hooks = [h for m in view.modules for h in (m._backward_hooks, m._backward_pre_hooks) if h]
    kept = [dict(owner) for owner in hooks]
    for owner in hooks:
        owner.update({key: wrapped(hook) for key, hook in owner.items()})
    try:
        yield
    finally:
        muted = False
        for owner, before in zip(hooks, kept, strict=True):
            owner.update(before)


@contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as written."""
    with PROCESS_SWITCHES, torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def differentiable_kernels(view: ModelView, *, once: bool = False) -> Iterator[None]:
    """Choose kernels that have forward-mode and second derivatives; also where a checkpoint inside
    computes anew, whenever that is. once: those without second derivatives, too."""

    recurrence = view.recurrence()
    attention = [SDPBackend.MATH]
    if once and all(p.device.type == "cpu" for p in view.parameters):
        attention.append(SDPBackend.FLASH_ATTENTION)  # its tangent: ops/attention.py

    def kernels() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(sdpa_kernel(attention))
        stack.enter_context(recurrence())
        return stack

    with recomputing_under(kernels, view.note_recomputation), kernels():
        yield
