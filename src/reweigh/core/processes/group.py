"""Processes that share a batch, and what they tell each other.

For N processes to do what one does on the joined batch, a step needs from all of them

    v = sum_k grad g_k / m         the clean gradient: one sum of its size, with the clean loss and m
    sum_j max(score_j, 0)          a few numbers a process, gathered (core/rule.py)
    d = sum_i weight_i grad f_i    the update, which DistributedDataParallel and fully_shard average

Everything else is each process's own. Sums travel in float32 or wider. All processes take part in
every call, also one whose share of the batch is empty.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import LostProcessError, SettingError, UnsupportedModelError, unknown
from ..model import is_spread
from .ddp import wrapper_of
from .fsdp import mesh_of


@dataclass(frozen=True)
class Group:
    """The processes that share a batch.

    averages: a wrapper of the model averages the gradients over them in `backward()`.
    handle:   torch.distributed's own name for them; None is its default group.
    """

    size: int = 1
    rank: int = 0
    averages: bool = False
    handle: Any = None

    def summed(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin to add `values` up over the processes, in place; call the result for the sum."""
        if self.size == 1:
            return lambda: values
        with answered("sum"):
            work = dist.all_reduce(values, group=self.handle, async_op=True)

        def arrived() -> Tensor:
            with answered("sum"):
                work.wait()
            return values

        return arrived

    def gathered(self, values: Tensor) -> Tensor:
        """[size, k] from the [k] of each process, by rank."""
        if self.size == 1:
            return values.unsqueeze(0)
        rows = values.new_empty((self.size, *values.shape))
        with answered("gather"):
            dist.all_gather(list(rows.unbind()), values.contiguous(), group=self.handle)
        return rows

    def joined(self, values: Tensor) -> tuple[Tensor, slice]:
        """The [n] of all processes one after the other, by rank, and where one's own stand in it."""
        counts = self.gathered(torch.tensor([len(values)], device=values.device)).flatten().tolist()
        padded = values.new_zeros((max(counts), *values.shape[1:]))
        padded[: len(values)] = values
        rows = self.gathered(padded)
        start = sum(counts[: self.rank])
        of_all = torch.cat([row[:n] for row, n in zip(rows, counts, strict=True)])
        return of_all, slice(start, start + len(values))


ALONE = Group()


def require_group(group: str | Group | None) -> str | Group | None:
    """Return `group` if it says who shares a batch."""
    if isinstance(group, str) and group != "auto":
        raise unknown("group", group, ["auto"])
    if group is not None and not isinstance(group, (str, Group)):
        raise SettingError(
            f"group={group!r}; expected 'auto', None for this process by itself, or a "
            f"reweigh.core.Group"
        )
    return group


def process_count() -> int:
    """How many torch.distributed runs; 1 where it does not run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def group_of(model: nn.Module) -> Group:
    """Who shares a batch with this process in training `model`.

    The group of DistributedDataParallel or fully_shard, where the model is in one; nobody, where tensor
    parallelism alone has cut it; every process, where torch.distributed runs and the model is in none
    of these; else nobody.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    if (wrapper := wrapper_of(model)) is not None:
        return _group(wrapper.process_group, averages=True)
    if (mesh := mesh_of(model)) is not None:
        if mesh.ndim > 1 and mesh.size() != dist.get_world_size():
            raise UnsupportedModelError(
                f"{type(model).__name__} is sharded over the mesh {mesh}; expected one dimension, or "
                f"all processes: shard over a flat mesh of the processes that share a batch"
            )
        return _group(mesh.get_group() if mesh.ndim == 1 else None, averages=True)
    spread: Any = next((p for p in model.parameters() if is_spread(p)), None)
    if spread is not None:  # by tensor parallelism, whose processes run the same batch
        if spread.device_mesh.size() != dist.get_world_size():
            raise UnsupportedModelError(
                f"{type(model).__name__} is cut by tensor parallelism over {spread.device_mesh.size()} of "
                f"{dist.get_world_size()} processes; expected all of them, or fully_shard along the dimension "
                f"of the mesh that shares the batch; group=None if the others train by themselves"
            )
        return ALONE
    return _group(None, averages=False)


def _group(handle: Any, *, averages: bool) -> Group:
    size, rank = dist.get_world_size(handle), dist.get_rank(handle)
    if rank < 0:
        raise SettingError(
            "this process is not in the model's process group; expected a call by its members only"
        )
    return Group(size, rank, averages, handle) if size > 1 else ALONE


class Arriving(Sequence[Tensor]):
    """Tensors that are on their way; whoever first looks at one waits for all."""

    def __init__(self, wait: Callable[[], tuple[Tensor, ...]]) -> None:
        self._wait, self._values = wait, tuple[Tensor, ...]()

    def _arrived(self) -> tuple[Tensor, ...]:
        if not self._values:
            self._values = self._wait()
        return self._values

    def __getitem__(self, place: Any) -> Any:
        return self._arrived()[place]

    def __len__(self) -> int:
        return len(self._arrived())


def flattened(values: Sequence[Tensor], *numbers: Tensor) -> Tensor:
    """One vector of all values and then the numbers, in float32 or wider."""
    parts = [*values, *numbers]
    wide = torch.float32
    for part in parts:
        wide = torch.promote_types(wide, part.dtype)
    return torch.cat([part.detach().reshape(-1).to(wide) for part in parts])


def unflattened(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors that the beginning of `flat` was made of; views where the precision allows."""
    pieces = flat[: sum(p.numel() for p in like)].split([p.numel() for p in like])
    return tuple(piece.view(p.shape).to(p.dtype) for piece, p in zip(pieces, like, strict=True))


@contextmanager
def answered(what: str) -> Iterator[None]:
    """Turn the failure of an exchange between processes into an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        raise unanswered(error, what) from error


def unanswered(error: Exception, what: str = "step") -> LostProcessError:
    """The error for an exchange that has failed with `error`."""
    if isinstance(error, LostProcessError):
        return error
    # Without the place in the library's source, and what it advises.
    cause = re.sub(r"^\[[^]]*\] *", "", str(error).splitlines()[0]).partition(". ")[0]
    return LostProcessError(
        f"another process does not answer (a {what} over {process_count()} processes failed: "
        f"{cause}); expected all of them in every step: one has died, hangs or "
        f"has left early; its own log says why, and `torchrun --max-restarts` starts them all again"
    )


# What the back-ends of torch.distributed say when a peer is gone or too late.
_SIGNS = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting",
    "Read timeout", "Write timeout", "Socket Timeout", "gloo/transport",
)  # fmt: skip


def says_lost(error: Exception) -> bool:
    """Whether an error from anywhere in a step tells of a process that is gone."""
    return isinstance(error, (LostProcessError, dist.DistError)) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
    )
