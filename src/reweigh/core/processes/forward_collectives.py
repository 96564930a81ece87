"""Models whose own forward talks between processes, and which back-ends can follow them.

Batch statistics over all processes couple every example with every other: the score of one is then
a derivative through what other processes computed. A difference of two forward passes contains
that by itself; differentiating the backward does, if the exchange can be differentiated twice; the
other back-ends see one process only.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..model.parameters import modules_of, parameters_of
from .fsdp import is_sharded

HEARD = "heard"  # in memory: whether the forward of the clean batch exchanged anything
_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")


class Listener(TorchDispatchMode):
    """Notices any exchange between processes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.heard = self.heard or func.namespace in _NAMESPACES
        return func(*args, **(kwargs or {}))


def barred(model: nn.Module, memory: dict[Any, Any]) -> dict[str, str]:
    """The back-ends that cannot be right for `model` among several processes, each with the reason."""
    modules = modules_of(model)
    if is_sharded(parameters_of(modules)):
        why = "needs whole parameters, and fully_shard keeps them in shards"
        return dict.fromkeys(("ghost", "forward_mode", "double_backward"), why)
    if any(isinstance(m, nn.SyncBatchNorm) and m.training for m in modules):
        why = "cannot differentiate nn.SyncBatchNorm, which couples the processes"
        return dict.fromkeys(("ghost", "forward_mode", "double_backward"), why)
    if memory.get(HEARD):
        why = "sees one process, and the model's forward exchanges data between them"
        return dict.fromkeys(("ghost", "forward_mode"), why)
    return {}
