"""Models whose own forward talks between processes, and which back-ends can follow them.

Batch statistics over all processes couple every example with every other: the score of one is then a
derivative through what other processes computed. A difference of two forward passes contains that by
itself; differentiating the backward does, if the exchange can be differentiated twice; the other
back-ends see one process only.
"""

from torch import nn

from ..model import ModelView
from ..torch_internals import TorchDispatchMode

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")  # of exchanges


_OF_FULLY_SHARD = "c10d::_allgather_base_"  # how it gathers parameters


class Listener(TorchDispatchMode):
    """Notices any exchange between processes, but for those of fully_shard itself (sharded)."""

    def __init__(self, *, sharded: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard = False
        self._besides = _OF_FULLY_SHARD if sharded else ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.heard = self.heard or (func.namespace in _NAMESPACES and func.name() != self._besides)
        return func(*args, **(kwargs or {}))


def barred(view: ModelView, exchanges: bool) -> dict[str, str]:
    """The back-ends that cannot be right for a model among several processes, each with the reason.

    exchanges: whether its forward was heard to exchange data between processes.
    """
    every = ("ghost", "forward_mode", "double_backward")
    if any(isinstance(m, nn.SyncBatchNorm) and m.training for m in view.modules):
        return dict.fromkeys(
            every, "cannot differentiate nn.SyncBatchNorm, which couples the processes"
        )
    closed = {}
    if exchanges:
        why = "sees one process, and the model's forward exchanges data between them"
        closed = dict.fromkeys(("ghost", "forward_mode"), why)
    if view.sharded:
        closed["double_backward"] = "needs whole parameters, and fully_shard keeps them in shards"
    return closed
