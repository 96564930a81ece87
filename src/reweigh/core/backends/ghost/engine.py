"""Scores without per-example gradients: one backward to the activations.

Where a parameter first meets the batch, in y = op(x, W), the gradient of example i with respect to
W enters the score only through

    < grad_W f_i, V >  =  < d f_i / d y_i ,  (d op / d W) . V >          V: the clean gradient for W

so the scores are sums over such contacts of (gradient at the output) x (tangent of the output with
x held fixed); for a linear layer, g_i . (V a_i), which is the layer-wise form of Section 3.2.
The gradients at all outputs come from one backward pass that never forms a weight gradient. Once the
weights w are known, the update is assembled from what was captured: for a linear layer
sum_i w_i g_i a_i', with no second backward.

Cost: one forward more than plain training. Exact while no two examples touch each other between a
contact and the loss; train-mode BatchNorm is refused by name, and any other coupling is found by
measurement: with random factors r, the gradient of sum_i r_i f_i at each output must be that of
sum_i f_i, times r_i in the rows of example i (this also finds which rows those are).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from ....errors import UnsupportedModelError
from ...model.autograd_graph import leaves, unhooked, with_gradient
from ...model.device import in_type, on_host
from ...model.loss import Batch, Loss, evaluate, require_gradient
from ...model.parameters import Direction, dot, modules_of, parameters_of
from ...model.snapshot import Snapshot, plain_recurrence, precision
from ..base import Alignment, Memory
from ..proof import due, probe, tolerance
from .example_rows import Layout, find_layout
from .from_dispatch import Contact, Meet, Origin, Transposed
from .from_graph import RecordedContact, read


def align(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Scores from captured inputs and one backward to the outputs of the parametrised operations."""
    if memory.get(READABLE, True):
        before = Snapshot(model)
        with plain_recurrence(model), torch.enable_grad():
            losses = require_gradient(evaluate(model, loss, train, which="train"), which="train")
        reading = read(losses, direction.parameters)
        if reading is not None:
            key = (reading.path, *shapes_of(reading.contacts, len(losses)))
            try:
                return _align(
                    model, losses, reading.contacts, None, reading.leaves, key, direction, memory
                )
            except UnsupportedModelError:
                if key in memory:  # it was right before: the model has changed
                    raise
        del losses
        memory[READABLE] = False
        before.restore()
    mode = Meet(model, direction, train)
    try:
        with plain_recurrence(model), torch.enable_grad(), mode:
            losses = require_gradient(evaluate(model, loss, train, which="train"), which="train")
        contacts = mode.finish()
        direct = mode.tangent(losses)  # a part of the loss that does not involve the batch
    finally:
        mode.release()
    key = (tuple(mode.path), *shapes_of(contacts, len(losses)))
    reachable = {id(leaf) for leaf in leaves(losses.grad_fn)}
    return _align(model, losses, contacts, direct, reachable, key, direction, memory)


READABLE = "readable"  # in memory: whether the graph of a plain pass tells all contacts
AnyContact = Contact | RecordedContact


def as_captured(device: torch.device) -> AbstractContextManager[object]:
    """No autocast: captured tensors are already in the precision that it chose for each."""
    kind = device.type
    if not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def _align(
    model: nn.Module,
    losses: Tensor,
    contacts: Sequence[AnyContact],
    direct: Tensor | None,
    reachable: set[int],
    key: Any,
    direction: Direction,
    memory: Memory,
) -> Alignment:
    layouts, uses = memory.get(key, (None, 0))
    fresh = layouts is None or due(uses + 1)
    certain = True
    if layouts is None or fresh:
        layouts, certain = measure(model, losses, contacts, direction)
    whole = assembles(model, direction, reachable)
    outputs = backward(losses, contacts, torch.ones_like(losses), keep=fresh or not whole)
    capture = Capture(list(contacts), outputs, layouts, len(losses))
    scores = capture.scores(direction.values, losses, direct)
    if fresh:
        prove(model, losses, capture, scores, direction)
    if certain:
        if len(memory) > MOST_PATHS:  # a model that never takes the same path twice
            memory.clear()
        memory[key] = (layouts, uses + 1)
    if not whole:
        return Alignment(losses.detach(), scores, lambda w: (w * losses).sum())
    values = losses.detach()
    # A parameter that the loss does not touch keeps the gradient it has, as in plain training.
    reached = [p for p in direction.parameters if id(p) in reachable]
    return Alignment(values, scores, lambda w: assembled(w, values, capture, reached))


# Of one model in one mode: where the examples lie in the results of its contacts, by path (every
# operation, the parameters and sizes at each contact), with the number of uses since measured.
MOST_PATHS = 64


def shapes_of(contacts: Sequence[AnyContact], n: int) -> Iterator[Any]:
    """For each contact its parameters, and for each dimension of its result: 0 if that cannot hold
    n examples, 1 if just those, else 2."""
    for contact in contacts:
        yield (
            contact.roots(),
            tuple(0 if size % n else 1 if size == n else 2 for size in contact.shape),
        )


def assembles(model: nn.Module, direction: Direction, reachable: set[int]) -> bool:
    """Whether the update can be put together from the capture: every trainable parameter is
    aligned, and nothing else needs a gradient."""
    aligned = {id(p) for p in direction.parameters}
    everything = {id(p) for p in parameters_of(modules_of(model)) if p.requires_grad}
    return everything == aligned >= reachable


@dataclass
class Capture:
    """Inputs and output gradients of every contact of one pass: all that an update needs."""

    contacts: list[AnyContact]
    outputs: list[Tensor]
    layouts: tuple[Layout, ...]
    n: int  # examples

    def __post_init__(self) -> None:
        # The graph is not needed any more, and its first layer, which no backward has gone through,
        # still keeps its inputs.
        for contact in self.contacts:
            contact.leave_graph()

    def scores(self, values: Sequence[Tensor], losses: Tensor, direct: Tensor | None) -> Tensor:
        """sum over contacts of < g_i, (d op / d W) . V >."""
        parts = [] if direct is None else [direct.detach()]
        with as_captured(losses.device), torch.no_grad():
            for contact, g, layout in zip(self.contacts, self.outputs, self.layouts, strict=True):
                part = contact.scores(values, g, layout, self.n)
                if part is not None:
                    parts.append(in_type(part, losses.dtype))
            return torch.stack(parts).sum(0) if parts else torch.zeros_like(losses)

    def gradient(
        self, weights: Tensor, parameters: Sequence[Tensor], *, last: bool = False
    ) -> list[Tensor | None]:
        """grad sum_i weights_i f_i, from the captured inputs and output gradients, which the `last`
        call lets go of one by one. Examples behind the last weight have none.

        Examples without weight are left out, where finding them needs no wait for a device.
        """
        n, parts = self.n, dict[Origin, Tensor]()
        kept = weights.nonzero().flatten() if on_host(weights) else None
        some = kept is not None and 0 < len(kept) < WORTH_SKIPPING * n
        share = weights.index_select(0, kept) if kept is not None and some else weights
        contacts = self.contacts if last else list(self.contacts)
        outputs = self.outputs if last else list(self.outputs)
        needed: list[tuple[AnyContact, Tensor]] = []  # all of it, before the first gradient is made
        for layout in reversed(self.layouts):
            contact: AnyContact = contacts.pop()
            g: Tensor = outputs.pop()
            if some and isinstance(contact, RecordedContact) and contact.splits(layout):
                assert kept is not None
                pick = partial(layout.pick, kept, n)
                contact = contact.only(pick)  # the rest is let go of, one by one
                g = pick(g)
                g.mul_(in_type(layout.spread(share, g.shape), g.dtype))
            else:
                g = g * in_type(layout.spread(padded(weights, n), g.shape), g.dtype)
            needed.append((contact, g))
        while needed:
            contact, g = needed.pop()
            for origin, found in zip(contact.origins, contact.gradients(g), strict=True):
                if isinstance(origin, Transposed):
                    _add(parts, origin.parameter, None if found is None else found.t())
                elif origin is not None:
                    _add(parts, origin, found)
        return _pull_back(parts, parameters)


# A batch is cut down to the examples with weight if these are less than this share of it.
WORTH_SKIPPING = 0.9


def padded(weights: Tensor, n: int) -> Tensor:
    """With zeros for the examples behind the last."""
    missing = n - weights.shape[0]
    return torch.cat([weights, weights.new_zeros(missing)]) if missing else weights


def _add(parts: dict[Origin, Tensor], origin: Origin, part: Tensor | None) -> None:
    if part is not None:
        parts[origin] = parts[origin] + part if origin in parts else part


def _pull_back(parts: dict[Origin, Tensor], parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """From what was computed out of parameters (a transpose, a cast) back to the parameters."""
    derived = [origin for origin in parts if isinstance(origin, GradientEdge)]
    result = [parts.get(parameter) for parameter in parameters]
    if derived:
        # retain_graph: these few nodes stay valid for a second call, at no cost in memory.
        further = torch.autograd.grad(
            derived, list(parameters), [parts[edge] for edge in derived], allow_unused=True,
            retain_graph=True,
        )  # fmt: skip
        for i, part in enumerate(further):
            if part is not None:
                before = result[i]
                result[i] = part if before is None else before + part
    return result


def assembled(
    weights: Tensor,
    losses: Tensor,
    capture: Capture,
    reached: Sequence[nn.Parameter],
) -> Tensor:
    """sum_i weights_i losses_i, differentiable through the capture."""
    return with_gradient(
        torch.dot(weights, losses),
        reached,
        lambda scale: capture.gradient(weights * scale, reached, last=True),
    )


def backward(
    losses: Tensor, contacts: Sequence[AnyContact], factors: Tensor, *, keep: bool
) -> list[Tensor]:
    """The gradient of sum_i factors_i f_i at the result of each contact."""
    if not contacts:
        return []
    found = torch.autograd.grad(
        losses,
        [contact.edge for contact in contacts if contact.edge is not None],
        factors,
        retain_graph=keep,
        allow_unused=True,
    )
    return [
        losses.new_zeros(c.shape) if g is None else g for c, g in zip(contacts, found, strict=True)
    ]


def measure(
    model: nn.Module, losses: Tensor, contacts: Sequence[AnyContact], direction: Direction
) -> tuple[tuple[Layout, ...], bool]:
    """Where the examples lie in every result, and whether another batch could show otherwise; an
    error if they are coupled."""
    factors, close = probe(losses), tolerance(precision(model, losses))
    plain = backward(losses, contacts, torch.ones_like(losses), keep=True)
    scaled = backward(losses, contacts, factors, keep=True)
    layouts, certain = [], len(losses) > 1
    for contact, one, other in zip(contacts, plain, scaled, strict=True):
        found = find_layout(one, other, factors, tolerance=close)
        if not found:
            raise UnsupportedModelError(
                f"the examples of a batch are coupled after {_describe(contact, direction)}, "
                f"which ghost cannot follow: use backend='auto' or 'forward_mode'"
            )
        layouts.append(found[0])
        # A gradient of zero (a closed gate, a head at zero) fits any layout, and any coupling.
        seen = torch.linalg.vector_norm(other) > 1e-9 * torch.linalg.vector_norm(factors)
        certain = certain and len(found) == 1 and bool(seen)
    return tuple(layouts), certain


def prove(
    model: nn.Module,
    losses: Tensor,
    capture: Capture,
    scores: Tensor,
    direction: Direction,
) -> None:
    """Compare with autograd: the assembled gradient, and the scores through it."""
    factors, close = probe(losses), tolerance(precision(model, losses))
    with unhooked(direction.parameters):
        truth = torch.autograd.grad(
            losses, direction.parameters, factors, retain_graph=True, materialize_grads=True,
            allow_unused=True,
        )  # fmt: skip
    truth = tuple(g.to_dense() if g.is_sparse else g for g in truth)
    guess = capture.gradient(factors, direction.parameters)
    size = dot(truth, truth).sqrt()
    for name, right, mine in zip(direction.names, truth, guess, strict=True):
        error = torch.linalg.vector_norm(right if mine is None else right - mine)
        if not error <= close * torch.maximum(torch.linalg.vector_norm(right), size * 1e-3):
            raise UnsupportedModelError(
                f"parameter {name!r} is used in a way ghost cannot see (a custom autograd.Function "
                f"or code outside PyTorch): use backend='auto' or 'double_backward'"
            )
    gap = (dot(truth, direction.values) - (factors * scores).sum()).abs()
    if not gap <= close * size * direction.norm_squared().sqrt():
        raise UnsupportedModelError(
            f"ghost's scores miss autograd's by {float(gap):.3g}: use backend='auto'"
        )


def _describe(contact: AnyContact, direction: Direction) -> str:
    names = {id(p): name for name, p in zip(direction.names, direction.parameters, strict=True)}
    used = [names[id(s)] for s in contact.sources if id(s) in names]
    inherited = [
        names[id(s._base)] for s in contact.sources if s._base is not None and id(s._base) in names
    ]
    where = ", ".join(repr(name) for name in used + inherited)
    return f"{contact.func}" + (f" with {where}" if where else "")
