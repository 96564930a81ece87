"""Models whose own forward talks between processes, and which back-ends can follow them.

Batch statistics over all processes couple every example with every other: the score of one is then a
derivative through what other processes computed. A difference of two forward passes contains that by
itself; differentiating the backward does, if the exchange can be differentiated twice; the other
back-ends see one process only.
"""

from collections.abc import Collection, Sequence

from torch import nn

from ..model import ModelView
from ..torch_internals import TorchDispatchMode, members_of

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")  # of exchanges


_OF_FULLY_SHARD = "c10d::_allgather_base_"  # how it gathers parameters


class Listener(TorchDispatchMode):
    """Notices any exchange between processes, but for those of fully_shard itself (sharded), and those
    between processes that tensor parallelism has cut a model for (split): the members of each group."""

    def __init__(self, *, sharded: bool = False, split: Collection[Sequence[int]] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard = False
        self._besides, self._split = _OF_FULLY_SHARD if sharded else "", split

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func.namespace in _NAMESPACES and func.name() != self._besides:
            self.heard = self.heard or not (
                self._split and self._of_split(func.namespace, args[-1])
            )
        return func(*args, **(kwargs or {}))

    def _of_split(self, namespace: str, last: object) -> bool:
        """Whether a call is a part of tensor parallelism's exchanges. last: its last argument, the name of a
        group; those that name none wait for an exchange that was heard before.

        By its members, since there may be several groups of the same: DTensors remember what they have
        done with a mesh, and take the groups of an equal one."""
        return namespace != "c10d" and (
            not isinstance(last, str) or members_of(last) in self._split
        )


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
    if view.split:
        closed["ghost"] = "reads whole layers, and tensor parallelism has cut them"
        closed["double_backward"] = (
            "needs a second derivative of DTensor.from_local, which PyTorch leaves out, and tensor "
            "parallelism calls it"
        )
    return closed
