"""Both batches in one pass, where no example touches another.

A clean batch of a handful of rows costs little arithmetic and many calls: for a small network, or on
a GPU, its pass of its own is most of what weighing costs. Examples that a model treats one by one do
not notice who else is in the batch, so the clean rows are put behind the train rows:

    one forward over n + m rows, one backward to the outputs of the layers
    from the last m rows   the clean gradient (factoring.py)
    from the first n       scores and update, as in ghost

Only for models that ghost can run, whose forward draws no random numbers and writes no buffers, with
nobody's hooks on it to be surprised, and where it takes less memory: the clean rows are held beside
the train rows, but no gradient of the large linear layers. All of it is found out, not assumed: at
the first pass and when due, the losses must be those of two passes, no gradient may mix examples,
and the clean gradient, the scores and the update must be autograd's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_flatten, tree_unflatten

from ....errors import UnsupportedModelError
from ...clean.factoring import agrees, collected, paying
from ...clean.gradient import CleanSide
from ...model.loss import Batch, Loss, evaluate, flat, require_one_each
from ...model.parameters import Direction, modules_of
from ...model.snapshot import Snapshot, hooked, isolated, precision
from ...ops import Layer
from ..base import Alignment, Memory
from ..proof import due, tolerance
from . import engine as ghost
from .from_graph import Reading, RecordedContact, read

APART = "apart"  # in memory: that this model needs two passes
HEAVY = "heavy"  # in memory, by the shapes of the batches: that these do


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
        memory[APART] = any(hooked(m) or _known_impure(m) for m in modules_of(model))
    if memory[APART] or (batch := joined(train, clean, memory)) is None:
        return None
    before = Snapshot(model)
    try:
        losses = require_one_each(loss(model, batch.both), {batch.n + batch.m}, which="train")
        names, theta = tuple(parameters), tuple(parameters.values())
        reading = read(losses, theta)
        if reading is not None:
            if batch.kind not in memory:  # by shapes alone: a resumed run has the same bits
                light = _light(reading.contacts, theta, batch.n, batch.m)
                memory[batch.kind] = _factors(losses, batch.n, batch.m) if light else HEAVY
            if memory[batch.kind] is not HEAVY:
                return _split(model, loss, batch, losses, reading, names, theta, before, memory)
            before.restore()
            return None
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
    kind: tuple[Any, ...]  # all shapes


def _known_impure(module: nn.Module) -> bool:
    """Whether a module is of the usual ones that mix examples or draw numbers: not worth a try."""
    return module.training and (
        isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0)
    )


def joined(train: Batch, clean: Batch, memory: Memory) -> Joined | None:
    """Two batches as one; None unless all is tensors, alike but for the number of their rows."""
    if flat(train) and flat(clean):
        left, right, same = train, clean, len(train) == len(clean)
    else:
        (left, shape), (right, other) = tree_flatten(train), tree_flatten(clean)
        same = shape == other and all(isinstance(x, Tensor) for x in (*left, *right))
    if not same or not left or not left[0].ndim or not right[0].ndim:
        return None
    n, m = left[0].shape[0], right[0].shape[0]
    if not n or not m or not all(map(partial(_alike, n, m), left, right)):
        return None
    kind = ("shapes", m, *[x.shape for x in left])
    if memory.get(kind) is HEAVY:
        return None
    both = tuple(torch.cat(pair) for pair in zip(left, right, strict=True))
    whole = both if left is train else tree_unflatten(both, shape)
    return Joined(whole, train, clean, n, m, kind)


def _alike(n: int, m: int, a: Tensor, b: Tensor) -> bool:
    return (
        a.shape[:1] == (n,)
        and b.shape == (m, *a.shape[1:])
        and (a.dtype, a.device) == (b.dtype, b.device)
        and not (a.requires_grad or b.requires_grad)
        and a.layout == b.layout == torch.strided
    )


def _split(
    model: nn.Module,
    loss: Loss,
    batch: Joined,
    losses: Tensor,
    reading: Reading,
    names: tuple[str, ...],
    theta: tuple[nn.Parameter, ...],
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
        nowhere = Direction(names, theta, ())
        if not ghost.assembles(model, nowhere, reading.leaves):
            raise UnsupportedModelError("more needs a gradient than the aligned parameters")
        layouts, certain = ghost.measure(model, losses, contacts, nowhere)
        if not all(layout.dim == 0 and layout.major for layout in layouts):
            raise UnsupportedModelError("the rows of the two batches are not one behind the other")
        _require_same_losses(model, loss, batch, losses)
    outputs = ghost.backward(losses, contacts, memory[batch.kind], keep=fresh)
    layers, ends = _clean_rows(contacts, outputs, n, m)
    # Factors cost n m (in + out) products, and V (n + m) in out.
    values = collected(layers, ends, theta, share=n / (n + m))
    direction = Direction(names, theta, values)
    capture = ghost.Capture([*contacts], outputs, layouts, n + m)
    scores = capture.scores(values, losses, None)
    if fresh:
        if not agrees(values, losses[n:].mean(), theta):
            raise UnsupportedModelError("the clean gradient differs from autograd's")
        ghost.prove(model, losses[:n], capture, scores[:n], direction)
    if certain:
        if len(memory) > ghost.MOST_PATHS:
            memory.clear()
        memory[key] = (layouts, uses + 1)
    found = losses.detach()
    train, clean = found[:n], found[n:]
    reached = [p for p in theta if id(p) in reading.leaves]
    return Together(
        CleanSide(clean, clean.mean, direction),
        Alignment(train, scores[:n], lambda w: ghost.assembled(w, train, capture, reached)),
    )


def _factors(losses: Tensor, n: int, m: int) -> Tensor:
    """For the sum of the train losses and the mean of the clean ones."""
    return torch.cat([losses.new_ones(n), losses.new_full((m,), 1 / m)])


def _clean_rows(
    contacts: Sequence[RecordedContact], outputs: Sequence[Tensor], n: int, m: int
) -> tuple[list[Layer], list[Tensor]]:
    """The layers on the rows of the clean batch, and the gradients of its mean loss at their outputs."""
    layers: list[Layer] = []
    ends: list[Tensor] = []
    for contact, g in zip(contacts, outputs, strict=True):
        layer, rows = contact.layer, g.shape[0]
        if any(x.shape[:1] != (rows,) for x in layer.inputs):
            raise UnsupportedModelError("a layer's inputs have other rows than its result")
        start = rows // (n + m) * n
        layers.append(layer.of(tuple([x[start:] for x in layer.inputs])))
        ends.append(g[start:])
    return layers, ends


def _light(
    contacts: Sequence[RecordedContact], theta: Sequence[nn.Parameter], n: int, m: int
) -> bool:
    """Whether one pass holds less than two: the clean rows, instead of the products left as factors."""
    share = m / (n + m)
    more = sum(math.prod(c.shape) + sum(x.numel() for x in c.layer.inputs) for c in contacts)
    kept = paying([c.layer for c in contacts], theta, share * n / (n + m))
    less = sum(p.numel() for i in kept for p in contacts[i].sources)
    return share * more <= less


def _require_same_losses(model: nn.Module, loss: Loss, batch: Joined, losses: Tensor) -> None:
    close = tolerance(precision(model, losses))
    for part, found in ((batch.train, losses[: batch.n]), (batch.clean, losses[batch.n :])):
        with isolated(model, own_stream=False), torch.no_grad():
            alone = evaluate(model, loss, part, which="train")
        size = torch.linalg.vector_norm(alone) + close * len(alone) ** 0.5
        if not torch.linalg.vector_norm(alone - found.detach()) <= close * size:
            raise UnsupportedModelError("the losses depend on who else is in the batch")
