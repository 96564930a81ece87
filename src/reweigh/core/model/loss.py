"""The loss contract: `loss(model, batch) -> Tensor[n]`, one value per example, or [n, k], one per part.

Parts are the k tokens, tasks, candidate labels or annotators' labels of an example: each gets a score
and a weight of its own. What clean examples have to say is the mean over all their parts.

A batch is any pytree (tensors in tuples, lists, dicts, as deep as needed); only the loss looks
inside it. What is checked here is checked on every call, because a reduced or misshapen loss gives
plausible weights that mean nothing.
"""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ...errors import (
    BatchError,
    LossShapeError,
    NoGradientError,
    NonFiniteError,
    UnsupportedModelError,
)
from ..torch_internals import leave_checkpoints, version_of

Batch = Any
Loss = Callable[[nn.Module, Batch], Tensor]


class MicroBatches(tuple[Batch, ...]):
    """Batches that are weighed as one, and are never in memory together."""

    __slots__ = ()


def per_example(criterion: Callable[..., Tensor], **options: Any) -> Loss:
    """Turn a criterion into a loss for `(inputs, targets)` batches: the mean over each example.

    `criterion` is a function with a `reduction` argument, as those of `torch.nn.functional`;
    `options` are passed on to it. Where it returns more than one value per example (a regression
    of several outputs, a multi-label loss, tokens of a sequence), they are averaged.

    >>> loss = per_example(torch.nn.functional.cross_entropy, label_smoothing=0.1)
    >>> loss(nn.Linear(4, 3), (torch.zeros(5, 4), torch.tensor([0, 1, 2, 0, 1]))).shape
    torch.Size([5])
    """
    if isinstance(criterion, nn.Module) and getattr(criterion, "reduction", "none") != "none":
        raise LossShapeError(
            f"{type(criterion).__name__} has reduction={criterion.reduction!r}; "
            f"expected one value per example: build it with reduction='none'"
        )
    if not isinstance(criterion, nn.Module):
        options = {"reduction": "none", **options}

    def judge(outputs: Any, targets: Any) -> Tensor:
        values: Tensor = criterion(outputs, targets, **options)
        return values.flatten(1).mean(1) if values.ndim > 1 else values

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = batch
        return judge(model(inputs), targets)

    loss.__name__ = loss.__qualname__ = f"per_example({getattr(criterion, '__name__', criterion)})"
    loss.criterion = criterion  # type: ignore[attr-defined]
    loss.judge = judge  # type: ignore[attr-defined]  # outputs, targets -> losses: model and rest apart
    return loss


def evaluate(model: nn.Module, loss: Loss, batch: Batch, *, which: str) -> Tensor:
    """The per-example losses of `batch`, refused with a typed error where they are not that."""
    # A loss may know by itself how many examples a batch has, such as one for packed sequences.
    sizes = set[int]() if getattr(loss, "counts_examples", False) else leading_sizes(batch)
    if which == "clean":
        loss = getattr(loss, "clean", loss)  # it may have another form for checked examples
    tensors = batch if is_flat(batch) else [x for x in leaves_of(batch) if isinstance(x, Tensor)]
    if any(map(Tensor.is_inference, tensors)):
        raise BatchError(
            f"the {which} batch holds tensors made under torch.inference_mode(), which autograd cannot "
            f"use; expected ordinary ones: clone() them outside of it"
        )
    before = list(map(version_of, tensors))
    # Fresh containers: a loss may pop its labels out of a dict, and there is more than one pass.
    own = batch if is_flat(batch) else mapped(batch, lambda leaf: leaf)
    try:
        values = loss(model, own)
    except BaseException as error:
        leave_checkpoints(error)  # another back-end may go on from here
        raise
    if list(map(version_of, tensors)) != before:
        raise UnsupportedModelError(
            f"the model or loss has begun to write to the {which} batch in place, after steps that did "
            f"not; expected it to do so from the first step on, or not at all: work on a copy"
        )
    values = require_one_each(values, sizes, which=which, batch=batch)
    if hasattr(values, "full_tensor"):  # a loss of the DTensors of tensor parallelism
        values = values.full_tensor()
    return values.mean(1) if which == "clean" and values.ndim == 2 else values


class OnCopies:
    """A loss that hands a copy of every tensor to the user's loss, which may write to its input.

    written: whether a call has written to one. The batch itself stays as it is, for further passes.
    """

    def __init__(self, loss: Loss) -> None:
        self._loss, self.written = loss, False
        self.counts_examples = getattr(loss, "counts_examples", False)
        self._last: dict[int, Tensor] = {}  # by the id of the tensor that was copied

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The user's losses."""
        return self._on_copies(self._loss, model, batch)

    def clean(self, model: nn.Module, batch: Batch) -> Tensor:
        """The user's losses of a clean batch."""
        return self._on_copies(getattr(self._loss, "clean", self._loss), model, batch)

    def _on_copies(self, loss: Loss, model: nn.Module, batch: Batch) -> Tensor:
        copies: dict[int, Tensor] = {}

        def copied(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and not leaf.requires_grad:
                return copies.setdefault(id(leaf), same_layout(leaf))
            return leaf

        private = mapped(batch, copied)
        before = {key: version_of(x) for key, x in copies.items()}
        values = loss(model, private)
        written = {key: x for key, x in copies.items() if version_of(x) > before[key]}
        self.written, self._last = self.written or bool(written), {**self._last, **written}
        return values

    def reflect(self, private: Batch, batch: Batch) -> None:
        """Leave `batch` as one forward on it would have, given the copy that was run instead."""
        with torch.no_grad():
            for mine, theirs in zip(tensors_of(private), tensors_of(batch), strict=True):
                if id(mine) in self._last:
                    theirs.copy_(self._last[id(mine)])


def same_layout(tensor: Tensor) -> Tensor:
    """A copy with the same strides: what a model saves or copies can depend on them."""
    if tensor.layout != torch.strided or tensor.is_contiguous() or 0 in tensor.stride():
        return tensor.clone()
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def require_one_each(
    values: Any, sizes: set[int], *, which: str, batch: Batch | None = None
) -> Tensor:
    """Return `values` if they are one loss per example [n], or one per part of an example [n, k].

    sizes: the first dimensions of the tensors of the batch. The number of losses is the number of
    examples; another number than these is refused only where it looks like a mistake.
    """
    if not isinstance(values, Tensor):
        raise LossShapeError(
            f"loss returned {type(values).__name__} for the {which} batch; "
            f"expected a 1-d tensor with one value per example"
        )
    parts = values.ndim == 2 and values.shape[1] > 1
    if (values.ndim != 1 and not parts) or (
        sizes and len(values) not in sizes and _mistaken(len(values), sizes, batch)
    ):
        n = max(sizes) if sizes else "n"
        raise LossShapeError(
            f"loss returned shape {tuple(values.shape)} for the {which} batch of {n} examples; "
            f"expected ({n},), one value per example: build it with reduction='none'; or ({n}, k), one "
            f"for each of k > 1 parts of an example"
        )
    if not values.is_floating_point():
        raise LossShapeError(f"loss returned {values.dtype} for the {which} batch; expected floats")
    return values


def differentiable_losses(model: nn.Module, loss: Loss, batch: Batch, *, which: str) -> Tensor:
    """As `evaluate`, and refused if they do not depend on anything trainable."""
    return require_gradient(evaluate(model, loss, batch, which=which), which=which)


def _mistaken(count: int, sizes: set[int], batch: Batch | None) -> bool:
    """Whether so many losses look reduced, or like several per example that were not averaged: one, or
    a multiple of a first dimension, and no dimension of a tensor or length of a list in the batch."""
    if batch is None:
        return True
    if any(count in t.shape for t in leaves_of(batch) if isinstance(t, Tensor)):
        return False
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(parts, Iterable) and any(isinstance(x, list) and len(x) == count for x in parts):
        return False
    return count == 1 or any(n and count % n == 0 for n in sizes)


def require_gradient(losses: Tensor, *, which: str) -> Tensor:
    """Return `losses`, refused if they do not depend on anything trainable."""
    if not losses.requires_grad:
        raise NoGradientError(
            f"the {which} losses do not depend on any trainable parameter; expected a "
            f"differentiable loss: look for .detach(), .item(), torch.no_grad(), inference_mode() or argmax on the way"
        )
    return losses


def require_finite(losses: Tensor, *, which: str) -> None:
    """Raise if a loss is NaN or infinite, naming the batch and the rows (synchronises the device)."""
    finite = torch.isfinite(losses)
    if not finite.all():
        some = (~finite).any(1) if finite.ndim > 1 else ~finite
        rows = some.nonzero().flatten().tolist()
        shown = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
        raise NonFiniteError(
            f"the losses of the {which} batch are NaN or infinite at rows {shown} "
            f"({len(rows)} of {len(losses)}); expected finite values: check those inputs, "
            f"or lower the learning rate if earlier steps were fine"
        )


def mapped(batch: Batch, change: Callable[[Any], Any]) -> Batch:
    """The same containers around what `change` makes of each part, as deep as needed."""
    if isinstance(batch, Mapping):
        return _rebuilt(batch, {key: mapped(value, change) for key, value in batch.items()})
    if isinstance(batch, list | tuple):
        return _rebuilt(batch, [mapped(value, change) for value in batch])
    leaves, tree = tree_flatten(batch)
    return tree_unflatten([change(leaf) for leaf in leaves], tree)


def leading_sizes(batch: Batch) -> set[int]:
    """The sizes of the first dimension over all tensors in `batch`; empty if none has one."""
    return {t.shape[0] for t in leaves_of(batch) if isinstance(t, Tensor) and t.ndim > 0}


def leaves_of(batch: Batch) -> Sequence[Any]:
    """Everything in a batch that is no container; a UserDict is one."""
    if is_flat(batch):
        return tuple(batch)
    if isinstance(batch, MicroBatches):
        return [leaf for part in batch for leaf in leaves_of(part)]
    leaves: list[Any] = tree_leaves(batch)
    if not any(isinstance(leaf, Mapping) for leaf in leaves):
        return leaves
    return [
        x
        for leaf in leaves
        for x in (leaves_of(dict(leaf)) if isinstance(leaf, Mapping) else [leaf])
    ]


def is_flat(batch: Batch) -> bool:
    """Whether it is the usual one: a tuple of tensors, which needs no search and cannot change."""
    return type(batch) is tuple and all(isinstance(leaf, Tensor) for leaf in batch)


def require_examples(batch: Batch, *, which: str) -> None:
    """Raise if a tensor of the batch holds no example."""
    if 0 in leading_sizes(batch):
        raise empty(which)


def empty(which: str) -> BatchError:
    """The error for a batch without examples."""
    return BatchError(f"the {which} batch is empty: expected at least one example")


def tensors_of(batch: Batch) -> Iterator[Tensor]:
    """Every tensor in a batch, also inside mappings and objects that are no pytrees."""
    for leaf in leaves_of(batch):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, Mapping):
            yield from tensors_of(dict(leaf))
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, nn.Module)):
            yield from tensors_of(vars(leaf))


def batch_size(batch: Batch, *, which: str = "train") -> int:
    """The number of examples of a batch whose tensors, or whose parts by their lengths, agree on it."""
    sizes = leading_sizes(batch)
    if len(sizes) > 1:  # such as a list of images of different sizes
        lengths = _lengths(batch.values() if isinstance(batch, Mapping) else batch)
        sizes = lengths if len(lengths) == 1 else sizes
    if len(sizes) != 1:
        raise BatchError(
            f"the tensors of the {which} batch have first dimensions {sorted(sizes)}; expected one "
            f"common number of examples, so that the batch can be cut into chunks"
        )
    return sizes.pop()


def _lengths(parts: Iterable[Any]) -> set[int]:
    """The lengths of the tensors and lists among the parts of a batch."""
    found: set[int] = set()
    for part in parts:
        if isinstance(part, Mapping):
            found |= _lengths(part.values())
        elif isinstance(part, Tensor):
            found |= set(part.shape[:1])
        elif isinstance(part, list | tuple):
            found.add(len(part))
    return found


def rows(batch: Batch, start: int, stop: int) -> Batch:
    """Examples `start` to `stop` of a batch: of every tensor, array and list with one entry each.

    What has no length, or another one, belongs to the batch as a whole and is passed on as it is.
    """
    n = batch_size(batch)
    if isinstance(batch, list | tuple):  # of parts, even if there are as many as examples
        return _rebuilt(batch, [_cut(part, n, start, stop) for part in batch])
    return _cut(batch, n, start, stop)


def _cut(part: Any, n: int, start: int, stop: int) -> Any:
    if isinstance(part, Tensor) or hasattr(part, "__array__"):
        return part[start:stop] if part.ndim > 0 and part.shape[0] == n else part
    if isinstance(part, Mapping):
        return _rebuilt(part, {key: _cut(x, n, start, stop) for key, x in part.items()})
    if isinstance(part, list | tuple):
        holds_parts = any(isinstance(x, Tensor) and x.shape[:1] == (n,) for x in part)
        if len(part) == n and holds_parts:
            raise BatchError(
                f"a {type(part).__name__} of {n} tensors, some of {n} rows, in a batch of {n} "
                f"examples can be read in two ways; expected a dict of named parts, or another "
                f"number of examples, so that the batch can be cut into chunks"
            )
        if len(part) == n:
            return part[start:stop]
        return _rebuilt(part, [_cut(x, n, start, stop) for x in part])
    if hasattr(part, "__len__") and not isinstance(part, str | bytes) and len(part) == n:
        raise BatchError(
            f"a {type(part).__name__} of {n} entries in a batch of {n} examples cannot be cut into "
            f"chunks; expected tensors, arrays, lists, tuples and mappings"
        )
    return part


def _rebuilt(like: Any, parts: Any) -> Any:
    """A container of the same kind with other parts."""
    if isinstance(like, dict | UserDict):
        again = copy(like)  # keeps what a class of its own has besides its entries
        again.update(parts)
        return again
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*parts)
    return type(like)(parts)


def require_same_device(train: Batch, clean: Batch) -> None:
    """Raise if the two batches lie on different devices."""
    places = [
        {t.device for t in leaves_of(batch) if isinstance(t, Tensor)} for batch in (train, clean)
    ]
    if all(places) and places[0] != places[1]:
        first, second = (", ".join(sorted(map(str, p))) for p in places)
        raise BatchError(
            f"the train batch is on {first} and the clean batch on {second}; "
            f"expected one device: move both to the model's"
        )
