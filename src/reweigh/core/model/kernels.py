"""Kernels that every back-end can differentiate.

Compiled graphs hide the operations that the back-ends look at, fused attention has no forward-mode
and no second derivative, and fused recurrent layers (oneDNN, cuDNN) hide their steps. Inside these
contexts they run as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..torch_internals import fused_recurrence, set_fused_recurrence
from .view import ModelView


def eager() -> AbstractContextManager[None]:
    """Run compiled models as written."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def differentiable_kernels(view: ModelView) -> Iterator[None]:
    """Choose kernels that have forward-mode and second derivatives."""
    with sdpa_kernel(SDPBackend.MATH), plain_recurrence(view):
        yield


@contextmanager
def plain_recurrence(view: ModelView) -> Iterator[None]:
    """Run recurrent layers step by step."""
    if not view.recurrent():
        yield
        return
    before = fused_recurrence()
    set_fused_recurrence((False, False))
    try:
        yield
    finally:
        set_fused_recurrence(before)
