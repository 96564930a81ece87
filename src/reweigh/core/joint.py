"""Both batches in one pass, where no example touches another.

A clean batch of a handful of rows costs little arithmetic and many calls: for a small network, or on
a GPU, its pass of its own is most of what weighing costs. Examples that a model treats one by one do
not notice who else is in the batch, so the clean rows are put behind the train rows:

    one forward over n + m rows, one backward to the outputs of the layers
    from the last m rows   the clean gradient (factoring.py)
    from the first n       scores and update, as in ghost

Only for few clean rows, and for models that ghost can run, whose forward draws no random numbers and
writes no buffers, with nobody's hooks on it to be surprised, and where it takes less memory: the
clean rows are held beside the train rows, but no gradient of the large linear layers. All of it is
found out, not assumed: at the first pass and when due, the losses must be those of two passes, no
gradient may mix examples, and the clean gradient, the scores and the update must be autograd's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..errors import UnsupportedModelError
from . import ghost
from .alignment import Alignment, Memory
from .clean import CleanSide
from .factoring import agrees, collected, paying_contacts
from .isolation import Snapshot, hooked, isolated, precision
from .loss import Batch, Loss, evaluate
from .parameters import Direction, modules_of
from .recorded import Reading, RecordedContact, read
from .tolerance import due, tolerance

FEW = 0.25  # clean examples per train example, at most
APART = "apart"  # in memory: that this model needs two passes


@dataclass(frozen=True)
class Together:
    """What two passes would have given."""

    side: CleanSide
    alignment: Alignment


def in_one_pass(
    model: nn.Module,
    loss: Loss,
    train: Batch,
    clean: Batch,
    parameters: dict[str, nn.Parameter],
    memory: Memory,
) -> Together | None:
    """Weigh in one pass; None, and everything as it was, where it takes two."""
    if APART not in memory:  # once: what a proof depends on is part of whose memory this is
        memory[APART] = any(map(hooked, modules_of(model)))
    if memory[APART] or (batch := joined(train, clean)) is None:
        return None
    before = Snapshot(model)
    try:
        with torch.enable_grad():
            losses = evaluate(model, loss, batch.both, which="train")
        theta = tuple(parameters.values())
        reading = read(losses, theta)
        if reading is not None:
            direction = Direction(tuple(parameters), theta, ())
            return _split(model, loss, batch, losses, reading, direction, before, memory)
    except Exception:  # if it is the user's error, two passes say it better
        pass
    memory[APART] = True
    before.restore()
    return None


@dataclass(frozen=True)
class Joined:
    """Train rows, then clean rows."""

    both: Batch
    train: Batch
    clean: Batch
    n: int
    m: int


def joined(train: Batch, clean: Batch) -> Joined | None:
    """Two batches as one; None unless they have few clean rows, and all tensors alike but for that."""
    left, shape = tree_flatten(train)
    right, other = tree_flatten(clean)
    if shape != other or not left or not all(isinstance(x, Tensor) for x in (*left, *right)):
        return None
    n, m = (len(x[0]) if x[0].ndim else 0 for x in (left, right))
    if not 0 < m <= FEW * n:
        return None
    for a, b in zip(left, right, strict=True):
        if not a.ndim or len(a) != n or not b.ndim or len(b) != m or not _alike(a, b):
            return None
    both = [torch.cat(pair) for pair in zip(left, right, strict=True)]
    return Joined(tree_unflatten(both, shape), train, clean, n, m)


def _alike(a: Tensor, b: Tensor) -> bool:
    same = a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and a.device == b.device
    return (
        same and not (a.requires_grad or b.requires_grad) and a.layout == b.layout == torch.strided
    )


def _split(
    model: nn.Module,
    loss: Loss,
    batch: Joined,
    losses: Tensor,
    reading: Reading,
    direction: Direction,
    before: Snapshot,
    memory: Memory,
) -> Together:
    n, m, contacts = batch.n, batch.m, reading.contacts
    key = ("joint", reading.path, *ghost.shapes_of(contacts, n + m))
    layouts, uses = memory.get(key, (None, 0))
    fresh, certain = layouts is None or due(uses + 1), True
    if layouts is None or fresh:
        if not before.holds():
            raise UnsupportedModelError("the forward draws random numbers or writes buffers")
        _require_light(contacts, m / (n + m))
        layouts, certain = ghost.measure(model, losses, contacts, direction)
        _require_same_losses(model, loss, batch, losses)
    if not ghost.assembles(model, direction, reading.leaves) or not all(
        contact.splits(layout) and layout.major
        for contact, layout in zip(contacts, layouts, strict=True)
    ):
        raise UnsupportedModelError("the rows of the two batches cannot be told apart")
    factors = torch.cat([losses.new_ones(n), losses.new_full((m,), 1 / m)])
    gradients = ghost.backward(losses, contacts, factors, keep=fresh)
    values = collected(*_rows(contacts, gradients, n, m, clean=True), direction.parameters)
    direction = replace(direction, values=values)
    own, outputs = _rows(contacts, gradients, n, m, clean=False)
    capture = ghost.Capture([*own], outputs, layouts)
    found = losses.detach()
    train, clean = found[:n], found[n:]
    scores = capture.scores(values, train, None)
    if fresh:
        if not agrees(values, losses[n:].mean(), direction.parameters):
            raise UnsupportedModelError("the clean gradient differs from autograd's")
        ghost.prove(model, losses[:n], capture, scores, direction)
    if certain:
        if len(memory) > ghost.MOST_PATHS:
            memory.clear()
        memory[key] = (layouts, uses + 1)
    reached = [p for p in direction.parameters if id(p) in reading.leaves]
    return Together(
        CleanSide(clean, clean.mean, direction),
        Alignment(train, scores, lambda w: ghost.assembled(w, train, capture, reached)),
    )


def _rows(
    contacts: Sequence[RecordedContact],
    gradients: Sequence[Tensor],
    n: int,
    m: int,
    *,
    clean: bool,
) -> tuple[list[RecordedContact], list[Tensor]]:
    """The contacts and the gradients at their outputs, on the rows of one of the two batches."""
    parts: list[RecordedContact] = []
    outputs: list[Tensor] = []
    for contact, g in zip(contacts, gradients, strict=True):
        border = len(g) // (n + m) * n
        cut = partial(_after if clean else _before, border)
        outputs.append(cut(g))
        shape = tuple(outputs[-1].shape)
        layer = contact.layer.only(cut)
        parts.append(RecordedContact(layer, contact.edge, shape, contact.parameters, contact.func))
    return parts, outputs


def _before(border: int, rows: Tensor) -> Tensor:
    return rows[:border]


def _after(border: int, rows: Tensor) -> Tensor:
    return rows[border:].clone()  # a view would keep the train rows in memory


def _require_light(contacts: Sequence[RecordedContact], share: float) -> None:
    """That one pass holds less than two: the clean rows, instead of the products left as factors."""
    more = sum(math.prod(c.shape) + sum(x.numel() for x in c.layer.inputs) for c in contacts)
    paying = paying_contacts(contacts, share)
    less = sum(p.numel() for i in paying for p in contacts[i].sources)
    if share * more > less:
        raise UnsupportedModelError("two passes hold less")


def _require_same_losses(model: nn.Module, loss: Loss, batch: Joined, losses: Tensor) -> None:
    close = tolerance(precision(model, losses))
    for part, found in ((batch.train, losses[: batch.n]), (batch.clean, losses[batch.n :])):
        with isolated(model, own_stream=False), torch.no_grad():
            alone = evaluate(model, loss, part, which="train")
        size = torch.linalg.vector_norm(alone) + close * len(alone) ** 0.5
        if not torch.linalg.vector_norm(alone - found.detach()) <= close * size:
            raise UnsupportedModelError("the losses depend on who else is in the batch")
