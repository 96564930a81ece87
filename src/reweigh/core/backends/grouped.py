"""Micro-batches of a window, several in one pass, where no example touches another.

A micro-batch of one sequence is more calls than arithmetic. The clean batch goes through the model at once,
so that as much is known to fit: micro-batches that follow each other, alike but for the number of their rows,
are joined up to the size of the clean batch (of its largest part, where it comes in parts). So a window
needs the memory of one micro-batch or of the clean batch, whichever is larger, joined or not.

    losses, scores of a group  =  those of its micro-batches, one after the other

Only where that is the same by construction or the user vouches for it, as for both batches in one pass
(ghost/one_pass.py), and not with hooks, dropout or BatchNorm in train mode. Besides, no pass may draw random
numbers or write state, and at the first window and when due, the losses must be those of the micro-batches by
themselves. Else the window is run anew, one micro-batch at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...errors import UnsupportedModelError
from ..model import Batch, Direction, MicroBatches, batch_size, evaluate, leading_sizes, tensors_of
from ..proof import Record, next_look, require_same_losses
from ..torch_internals import BatchNormBase, DropoutBase, any_global_hook, leave_checkpoints
from .base import Alignment, Backend, TrainPass
from .chunked import align_in_parts
from .ghost import SeveralLosses, alike, mixes_or_draws, row_wise
from .single_loss import SingleLoss


def numbers_at_once(batch: Batch) -> int:
    """How many numbers of a batch go through the model together."""
    parts = batch if isinstance(batch, MicroBatches) else (batch,)
    return max((sum(x.numel() for x in tensors_of(part)) for part in parts), default=0)


@dataclass(frozen=True)
class Bundle:
    """Micro-batches as one batch. sizes: the rows of each."""

    batch: Batch
    parts: Sequence[Batch]
    sizes: Sequence[int]


class Groups:
    """Aligns a window in groups; made for one state of one model.

    asked: True where the user vouches for model and loss, False where it must not be, None: only where it is
           the same by construction.
    """

    def __init__(self, asked: bool | None) -> None:
        self._asked = asked
        self._closed: set[str] = set()  # back-ends with which groups did not do
        self._looks = Record(None)

    def align(
        self,
        backend: Backend,
        pass_: TrainPass,
        direction: Direction,
        single: SingleLoss | None,
    ) -> Alignment | None:
        """The alignment of the window; None, and everything as it was, where nothing is joined."""
        if backend.name in self._closed or not self._possible(pass_):
            return None
        groups = grouped(pass_.batch, pass_.room)
        if len(groups) == len(pass_.batch):
            return None
        start = pass_.view.start
        try:
            return self._run(backend, pass_, direction, groups, single)
        except SeveralLosses:  # of one micro-batch, too
            start.restore()
            raise
        except Exception as error:  # if it is not the groups' doing, one at a time says it better
            leave_checkpoints(error)
            start.restore()
            self._closed.add(backend.name)
            return None

    def _possible(self, pass_: TrainPass) -> bool:
        view, loss = pass_.view, pass_.loss
        if self._asked is False or view.hooked() or any_global_hook():
            return False
        if self._asked:
            return not any(map(_mixes_or_drops, view.modules))
        stock = hasattr(loss, "judge") and all(map(row_wise, view.modules))
        return stock and not any(map(mixes_or_draws, view.modules))

    def _run(
        self,
        backend: Backend,
        pass_: TrainPass,
        direction: Direction,
        groups: Sequence[Bundle],
        single: SingleLoss | None,
    ) -> Alignment:
        alignment = align_in_parts(backend, pass_, direction, [g.batch for g in groups], single)
        if not pass_.view.start.holds():
            raise UnsupportedModelError("the forward draws random numbers or writes state")
        shapes: list[torch.Size] = []
        for group, shape in zip(groups, alignment.shapes, strict=True):
            if shape[0] != sum(group.sizes):
                raise UnsupportedModelError("the number of losses is not that of the rows")
            shapes += [torch.Size((size, *shape[1:])) for size in group.sizes]
        if single is not None and backend.name != "ghost" and {*shapes} == {torch.Size((1,))}:
            raise UnsupportedModelError("the gradient of a single loss is its score already")
        if self._looks.due():
            self._require_apart(pass_, groups, alignment)
            self._looks.next_look = next_look(self._looks.uses + 1)
        self._looks.uses += 1
        return replace(alignment, shapes=shapes)

    def _require_apart(
        self, pass_: TrainPass, groups: Sequence[Bundle], alignment: Alignment
    ) -> None:
        """Raise unless the losses are those of the micro-batches by themselves."""
        rows = [size for group in groups for size in group.sizes]
        parts = [part for group in groups for part in group.parts]
        for part, joined in zip(parts, alignment.losses.split(rows), strict=True):
            with pass_.view.replayed(), torch.no_grad():
                alone = evaluate(pass_.view.model, pass_.loss, part, which="train")
            width = joined if alone.ndim == 1 else joined[:, : alone.shape[1]]  # zeros follow
            require_same_losses(pass_.view, alone, width)


def grouped(batches: Sequence[Batch], room: int) -> list[Bundle]:
    """The micro-batches, joined with those before as long as `room` numbers are not exceeded."""
    groups: list[list[Batch]] = []
    held = 0
    for batch in batches:
        size = sum(x.numel() for x in tensors_of(batch))
        if groups and held + size <= room and _alike(groups[-1][-1], batch):
            groups[-1].append(batch)
            held += size
        else:
            groups.append([batch])
            held = size
    return [_joined(parts) for parts in groups]


def _joined(parts: Sequence[Batch]) -> Bundle:
    if len(parts) == 1:
        sizes = leading_sizes(parts[0])
        return Bundle(parts[0], parts, [min(sizes)] if sizes else [0])
    columns = zip(*(tree_flatten(part)[0] for part in parts), strict=True)
    whole = tree_unflatten([torch.cat(column) for column in columns], tree_flatten(parts[0])[1])
    return Bundle(whole, parts, [batch_size(part) for part in parts])


def _alike(one: Batch, other: Batch) -> bool:
    """Whether two batches can follow each other: all is tensors, alike but for the number of rows."""
    (left, tree), (right, tree_too) = tree_flatten(one), tree_flatten(other)
    if tree != tree_too or not left or not all(isinstance(x, Tensor) for x in (*left, *right)):
        return False
    n, m = (len(x[0]) if x[0].ndim else 0 for x in (left, right))
    return n > 0 and m > 0 and all(alike(n, m, a, b) for a, b in zip(left, right, strict=True))


def _mixes_or_drops(module: nn.Module) -> bool:
    dropout = isinstance(module, DropoutBase) and module.p > 0
    return module.training and (dropout or isinstance(module, BatchNormBase))
