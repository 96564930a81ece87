"""Both batches in one pass, where no example touches another.

A clean batch of a handful of rows costs little arithmetic and many calls: for a small network, or on
a GPU, its own pass is most of what weighing costs. Where a model treats examples one by one, an
example does not notice who else is in the batch, so the clean rows can follow the train rows:

    one forward over n + m rows, one backward to the results of the layers
    from the last m rows    the clean gradient (core/clean/low_rank.py)
    from the first n        scores and update, as in every ghost pass

Only where it is the same by construction: a model of PyTorch's own modules (or of classes that say
`row_wise = True`) under a loss made by `per_example`, whose criterion is called for each batch by
itself. Elsewhere a batch statistic in the user's code, detached from the graph, would mix the batches
without a sign; `Reweighter(one_pass=True)` is for users who know that theirs has none. Never with hooks,
dropout or BatchNorm in train mode. And only where one pass holds less in memory: it holds the clean rows
beside the train rows, but no gradient of the large linear layers.

Besides, at the first pass and when due, the losses must be those of two passes, no gradient may mix
examples, and the clean gradient, the scores and the update must be autograd's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ....errors import UnsupportedModelError
from ...clean import CleanSide, collected, paying
from ...model import Batch, Direction, Loss, evaluate, is_flat, require_one_each
from ...ops import Layer
from ...proof import MOST_RECORDS, Records, require_same_losses, require_update, same_gradient
from ...torch_internals import (
    BatchNormBase,
    DropoutBase,
    any_global_hook,
    leave_checkpoints,
    version_of,
)
from ..base import TrainPass
from .engine import BothSides, Capture, GhostPass, Layouts, PlaceRecords, assembled
from .from_graph import RecordedContact, on_inputs, read


@dataclass(frozen=True)
class Joined:
    """Train rows, then clean rows. shapes: of both batches, which decide whether one pass pays.
    example: the shapes of one example."""

    both: Batch
    train: Batch
    clean: Batch
    n: int
    m: int
    shapes: Hashable
    example: Hashable


@dataclass
class OnePassPlan:
    """What is known about batches of certain shapes.

    pays:    whether one pass holds less than two.
    factors: [n + m], for the sum of the train losses and the mean of the clean ones; None before the
             first pass. retry: passes to sit out after one that ran out of memory.
    """

    pays: bool
    factors: Tensor | None = None
    retry: int = 0


@dataclass(frozen=True)
class Outline:
    """The layers of a pass over some rows, with inputs that have a shape and no memory.

    Where each tensor has its share of every row, the outline of one pass tells what passes over any
    number of rows would hold. size: elements of all inputs and results.
    """

    layers: Sequence[Layer]
    size: int
    rows: int

    @staticmethod
    def of(contacts: Sequence[RecordedContact], rows: int) -> Outline:
        """The outline of a pass over `rows` rows."""
        layers = [on_inputs(c.layer, tuple(map(_hollow, c.layer.inputs))) for c in contacts]
        size = sum(math.prod(c.shape) + sum(x.numel() for x in c.layer.inputs) for c in contacts)
        return Outline(layers, size, rows)


class OnePass:
    """The engine that weighs both batches in one pass.

    asked: True where the user vouches for model and loss, False where it must not be, None: only
           where it is the same by construction.
    """

    def __init__(self, asked: bool | None = None) -> None:
        self.possible = False if asked is False else None  # None: nobody has looked yet
        self._asked = asked
        self._plans: dict[Hashable, OnePassPlan] = {}
        self._outlines: dict[Hashable, Outline] = {}  # by the shapes of one example
        self._failures = 0
        self._records: PlaceRecords = Records()

    def align(
        self, pass_: TrainPass, clean: Batch, parameters: dict[str, nn.Parameter]
    ) -> BothSides | None:
        """Both sides of a step; None, and everything as it was, where it takes two passes."""
        view = pass_.view
        if self.possible is None:  # asked once: an engine belongs to one state of one model
            known = self._asked or (
                hasattr(pass_.loss, "judge") and all(map(row_wise, view.modules))
            )
            pure = not view.hooked() and not any(map(mixes_or_draws, view.modules))
            pure = pure and not any_global_hook()
            self.possible = bool(known) and pure
        # Asked in every step: a dropout may begin to drop without any change of mode.
        if not self.possible or any(map(mixes_or_draws, view.modules)):
            return None
        if (batch := self._joined(pass_.batch, clean, tuple(parameters.values()))) is None:
            return None
        # PyTorch's own modules and criteria neither draw nor write here: nothing to go back to.
        start = view.start if self._asked or not stock(pass_.loss) else None
        try:
            sides = self._run(pass_, batch, parameters)
        except Exception as error:  # if it is the user's error, two passes say it better
            leave_checkpoints(error)
            sides = None
            self._declined(batch, error)
        if start is not None:
            if sides is None:
                view.undo()
            else:
                start.compare()
        return sides

    def _joined(self, train: Batch, clean: Batch, theta: Sequence[nn.Parameter]) -> Joined | None:
        """Two batches as one; None unless they can be, and unless one pass may pay."""

        def may_pay(n: int, m: int, shapes: Hashable, example: Hashable) -> bool:
            plan = self._plans.get(shapes)
            if plan is not None and plan.retry:
                plan.retry -= 1
                if not plan.retry:
                    del self._plans[shapes]
                return False
            if plan is None and (outline := self._outlines.get(example)) is not None:
                plan = self._planned(shapes, _light(outline, theta, n, m))
            return plan is None or plan.pays

        return joined(train, clean, may_pay)

    def _planned(self, shapes: Hashable, pays: bool) -> OnePassPlan:
        if len(self._plans) > MOST_RECORDS:
            self._plans.clear()
        plan = self._plans[shapes] = OnePassPlan(pays)
        return plan

    def _declined(self, batch: Joined, error: Exception) -> None:
        """Remember why not: for good, or, after running out of memory, for some steps."""
        if "out of memory" not in str(error):
            self.possible = False
            return
        self._failures += 1
        self._plans[batch.shapes] = OnePassPlan(False, retry=2**self._failures)

    def _run(
        self, pass_: TrainPass, batch: Joined, parameters: dict[str, nn.Parameter]
    ) -> BothSides | None:
        names, theta = tuple(parameters), tuple(parameters.values())
        view, n, m = pass_.view, batch.n, batch.m
        losses = require_one_each(joint_losses(pass_, batch), {n + m}, which="train")
        if losses.ndim == 2:
            raise UnsupportedModelError("the loss has several parts an example")
        if self._asked and not view.start.holds():
            raise UnsupportedModelError("the forward draws random numbers or writes state")
        reading = read(losses, theta)
        if reading is None:
            self.possible = False
            return None
        plan = self._plans.get(batch.shapes)
        if plan is None:  # decided by shapes alone: a resumed run has the same bits
            if len(self._outlines) > MOST_RECORDS:
                self._outlines.clear()
            outline = self._outlines[batch.example] = Outline.of(reading.contacts, n + m)
            plan = self._planned(batch.shapes, _light(outline, theta, n, m))
        if not plan.pays:
            return None
        if plan.factors is None:
            plan.factors = _factors(losses, n, m)
        run = reading.ghost_pass(view, losses, self._records)
        due = run.due()
        if due:
            _require_aligned(run, theta)
        layouts = run.layouts(names, theta)
        if due:
            _require_apart(pass_, batch, losses, layouts)
        capture = run.capture(layouts, plan.factors, keep=due)
        layers, outputs = clean_rows(reading.contacts, capture, n, m)
        values = collected(layers, outputs, theta, train_share=n / (n + m))
        direction = Direction(names, theta, values)
        scores = capture.scores(values, losses, None)
        if due:
            if not same_gradient(values.products(), losses[n:].mean(), theta):
                raise UnsupportedModelError("the clean gradient differs from autograd's")
            update = partial(capture.gradient, parameters=theta)
            require_update(view, losses[:n], scores[:n], direction, update)
        run.remember(layouts)
        reached = [p for p in theta if id(p) in reading.leaves]
        clean_losses = losses.detach()[n:]
        return BothSides(
            CleanSide(clean_losses, clean_losses.mean, direction),
            assembled(losses.detach()[:n], scores[:n], capture, reached),
        )


def joined(
    train: Batch, clean: Batch, wanted: Callable[[int, int, Hashable, Hashable], bool]
) -> Joined | None:
    """Two batches as one; None unless all is tensors, alike but for the number of their rows, and unless
    it is `wanted`, given n, m, the shapes of both and those of one example."""
    if is_flat(train) and is_flat(clean):
        left, right, same = train, clean, len(train) == len(clean)
    else:
        (left, tree), (right, other) = tree_flatten(train), tree_flatten(clean)
        same = tree == other and all(isinstance(x, Tensor) for x in (*left, *right))
    if not same or not left or not left[0].ndim or not right[0].ndim:
        return None
    n, m = left[0].shape[0], right[0].shape[0]
    if not n or not m or not all(map(partial(alike, n, m), left, right)):
        return None
    shapes = (m, *[x.shape for x in left])
    example = tuple([x.shape[1:] for x in left])
    if not wanted(n, m, shapes, example):
        return None
    rows = tuple(torch.cat(pair) for pair in zip(left, right, strict=True))
    both = rows if left is train else tree_unflatten(rows, tree)
    return Joined(both, train, clean, n, m, shapes, example)


def joint_losses(pass_: TrainPass, batch: Joined) -> Tensor:
    """The losses of both batches, train rows first: one call of the model, one criterion per batch."""
    judge, model = getattr(pass_.loss, "judge", None), pass_.view.model
    whole = judge is None or len(batch.both) != 2
    joined = tree_leaves(batch.both)
    before = list(map(version_of, joined))
    outputs = pass_.loss(model, batch.both) if whole else model(batch.both[0])
    # Before anything runs on the user's own tensors, which such a forward would change.
    if list(map(version_of, joined)) != before:
        raise UnsupportedModelError("the forward writes to its input")
    if judge is None or whole:
        return outputs
    train, clean = outputs.split([batch.n, batch.m])
    # Clean first, and undone: the user's criterion may draw numbers or remember what it has seen.
    with nullcontext() if stock(pass_.loss) else pass_.view.isolated(own_stream=True):
        checked = judge(clean, batch.clean[1])
    return torch.cat([judge(train, batch.train[1]), checked])


def stock(loss: Loss) -> bool:
    """Whether the criterion of a `per_example` loss is a function or module of PyTorch's own."""
    criterion = getattr(loss, "criterion", None)
    kind = criterion if hasattr(criterion, "__name__") else type(criterion)
    return (getattr(kind, "__module__", None) or "").startswith(("torch.nn.", "torch._C._nn"))


def row_wise(module: nn.Module) -> bool:
    """Whether a module treats rows one by one because its code is PyTorch's, or says so of itself."""
    kind = type(module)
    if hasattr(kind, "set_requires_gradient_sync"):  # a class that fully_shard has made of another
        kind = next(c for c in kind.__mro__ if not hasattr(c, "set_requires_gradient_sync"))
    stock = kind.__module__.startswith("torch.nn.modules.") and "forward" not in vars(module)
    return stock or bool(getattr(kind, "row_wise", False))


def mixes_or_draws(module: nn.Module) -> bool:
    """Whether a module is a usual one that mixes examples or draws numbers: not worth a try."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return True  # its forward writes to its table
    dropout = isinstance(module, DropoutBase) and module.p > 0
    return module.training and (dropout or isinstance(module, _UNSURE))


# Modules of PyTorch that may draw random numbers or write buffers in train mode.
_UNSURE = (
    BatchNormBase, nn.RNNBase, nn.MultiheadAttention, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


def alike(n: int, m: int, a: Tensor, b: Tensor) -> bool:
    """Whether n rows of `a` and m rows of `b` can follow each other in one tensor."""
    return (
        a.shape[:1] == (n,)
        and b.shape == (m, *a.shape[1:])
        and (a.dtype, a.device) == (b.dtype, b.device)
        and not (a.requires_grad or b.requires_grad)
        and a.layout == b.layout == torch.strided
    )


def _factors(losses: Tensor, n: int, m: int) -> Tensor:
    """For the sum of the train losses and the mean of the clean ones."""
    return torch.cat([losses.new_ones(n), losses.new_full((m,), 1 / m)])


def _hollow(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and type that takes no memory."""
    return tensor.detach().new_empty(()).expand(tensor.shape)


def _light(outline: Outline, theta: Sequence[nn.Parameter], n: int, m: int) -> bool:
    """Whether one pass holds less than two: the clean rows, instead of products left as factors."""
    share = Fraction(
        m, outline.rows
    )  # exact: the same answer from an outline of any number of rows
    factored = paying(outline.layers, theta, clean_share=share, train_share=n / (n + m))
    uses = (use for i in factored for use in outline.layers[i].uses if use)
    return share * outline.size <= sum(theta[use.place].numel() for use in uses)


def _require_aligned(run: GhostPass, theta: Sequence[nn.Parameter]) -> None:
    """Raise if more is trained than is aligned."""
    if not run.assembles(theta):
        raise UnsupportedModelError("more needs a gradient than the aligned parameters")


def _require_apart(pass_: TrainPass, batch: Joined, losses: Tensor, layouts: Layouts) -> None:
    """Raise unless the two batches stay apart: in every result, and in the losses."""
    if not all(layout.dim == 0 and layout.major for layout in layouts):
        raise UnsupportedModelError("the rows of the two batches are not one after the other")
    for part, joined in ((batch.train, losses[: batch.n]), (batch.clean, losses[batch.n :])):
        require_same_losses(pass_.view, alone(pass_, part), joined)


def alone(pass_: TrainPass, batch: Batch) -> Tensor:
    """The losses of a batch by itself."""
    with pass_.view.replayed(), torch.no_grad():
        return evaluate(pass_.view.model, pass_.loss, batch, which="train")


def clean_rows(
    contacts: Sequence[RecordedContact], capture: Capture, n: int, m: int
) -> tuple[list[Layer], list[Tensor]]:
    """The layers on the rows of the clean batch, and the gradients of its mean loss there."""
    layers: list[Layer] = []
    outputs: list[Tensor] = []
    for contact, g in zip(contacts, capture.outputs, strict=True):
        layer, rows = contact.layer, g.shape[0]
        if any(x.shape[:1] != (rows,) for x in layer.inputs):
            raise UnsupportedModelError("a layer's inputs have other rows than its result")
        start = rows // (n + m) * n
        layers.append(on_inputs(layer, tuple([x[start:] for x in layer.inputs])))
        outputs.append(g[start:])
    return layers, outputs
