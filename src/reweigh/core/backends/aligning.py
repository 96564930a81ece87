"""Both sides of a step put together: the clean gradient, and the train batch aligned with it."""

from __future__ import annotations

from torch import nn

from ...errors import SettingError
from ..clean.gradient import CleanSide, clean_gradient
from ..model.loss import Batch, Loss, empty, require_examples
from ..model.parameters import Direction
from ..processes.empty_share import is_empty, nothing, without_statistics
from ..processes.forward_collectives import HEARD, Listener, barred
from ..processes.fsdp import is_sharded
from ..processes.group import Group
from .base import Alignment, Memory
from .chunked import run_in_chunks
from .selection import Choice, Settled, settle
from .table import run


def clean_side(
    model: nn.Module,
    loss: Loss,
    clean: Batch,
    *,
    parameters: dict[str, nn.Parameter],
    memory: Memory,
    group: Group,
    factored: bool = False,
) -> CleanSide:
    """The clean gradient; among processes the first one also tells whether the forward exchanges.

    factored: whether factors will do where they are smaller, as they do for ghost.
    """
    if group.size == 1:
        require_examples(clean, which="clean")
        return clean_gradient(
            model, loss, clean, parameters=parameters, factors=memory if factored else None
        )
    listener = None if HEARD in memory else Listener()
    side = clean_gradient(model, loss, clean, parameters=parameters, group=group, listener=listener)
    if listener is not None:
        memory[HEARD] = listener.heard
    return side


def align(
    model: nn.Module,
    loss: Loss,
    train: Batch,
    direction: Direction,
    memory: Memory,
    *,
    asked: str,
    known: Choice | None,
    chunk: int | None,
    group: Group,
) -> Settled:
    """The train batch along `direction`, by the back-end asked for or the best that can."""
    shared = group.size > 1 or is_sharded(direction.parameters)
    closed = barred(model, memory) if shared else {}
    if group.size == 1:
        require_examples(train, which="train")
    elif chunk is not None and closed:
        raise SettingError(
            f"chunk={chunk} with a model whose forward exchanges data between processes, which may "
            f"hold different numbers of chunks; expected chunk=None: take smaller batches instead"
        )

    def attempt(name: str) -> Alignment:
        if group.size > 1 and is_empty(train):
            if not closed:
                return nothing(model)
            with without_statistics(model):
                return run(name, model, loss, train, direction, memory)
        if chunk is not None:
            return run_in_chunks(name, model, loss, train, direction, memory, chunk=chunk)
        return run(name, model, loss, train, direction, memory)

    settled = settle(asked, known, attempt, model, direction, group=group, barred=closed)
    if len(settled.alignment.losses) == 0 and (settled.whole is None or not settled.whole.count):
        raise empty("train")
    return settled
