"""The private names of PyTorch that we use, all in this file.

None of them is promised to stay, so this is the file to look at when a new version of torch breaks
something. Each has a public face here: a re-export, or a small function that says what is asked.

The names of operations (`torch.ops.aten.mm.default`) and of the nodes of a graph ("MmBackward0") are
not in here. They are what an operation is known by, and stand where it is registered (core/ops).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "DispatchMode",
    "OpOverload",
    "TorchDispatchMode",
    "autograd_in_handler",
    "base_of",
    "is_mutable",
    "is_view",
    "out_of_place",
    "result_shape",
    "saved",
]


class DispatchMode(TorchDispatchMode):
    """A dispatch mode without PyTorch's guard against compilation, which costs 10 us per call.

    For modes under which compiled code never runs.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@cache
def is_mutable(func: OpOverload) -> bool:
    """Whether an operation writes to one of its arguments."""
    return bool(func._schema.is_mutable)


def out_of_place(func: OpOverload) -> OpOverload | None:
    """The operation that computes the same without writing to its argument: `add` for `add_`."""
    name = func._schema.name.removeprefix("aten::")
    if not name.endswith("_"):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    twin: OpOverload | None = getattr(packet, func._overloadname, None)
    return twin


def is_view(tensor: Tensor) -> bool:
    """Whether a tensor is a view of another one."""
    return tensor._is_view()


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor that this one is a view of; None where it is none."""
    return tensor._base


def saved(*names: str) -> Callable[[Any], Any]:
    """A reader of what a node of autograd's graph has saved under these names.

    One name: the value. Several: a tuple of values. Make the reader once and call it per node, since
    it is as fast as the attribute itself. Reading a tensor runs the unpack hooks of the graph (those
    of checkpointing compute it anew), so read only what is needed.
    """
    return attrgetter(*(f"_saved_{name}" for name in names))


def result_shape(node: Any) -> tuple[int, ...]:
    """The shape of the first result of the operation that a node of the graph stands for."""
    return tuple(node._input_metadata[0].shape)


@contextmanager
def autograd_in_handler() -> Iterator[None]:
    """Switch on again, inside the handler of a dispatch mode, what the handler runs beneath.

    That is autograd, where PyTorch's forward-mode formulas are, and the symbolic zeros and conjugates
    that they use (a kernel would read those as memory).
    """
    keys = torch._C.DispatchKey
    with ExitStack() as stack:
        for key in (
            keys.AutogradFunctionality,
            keys.ADInplaceOrView,
            keys.ZeroTensor,
            keys.Conjugate,
            keys.Negative,
        ):
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        yield
