"""Which checked rows speak against a training row, and which for it.

    product_ij = < grad f_i(theta), grad f_j(theta) >     i a training row, j a checked one

A small step on row i changes the loss of checked row j by -product_ij times its size. So a checked row
with a negative product would suffer from the row as it is labelled: it speaks against it. The mean of
the products over the checked rows is the row's score, so the products are its parts.

All gradients of some rows are held at once, in at most MEMORY numbers, and multiplied: one forward and
backward pass per row, and one more per checked row for each block of training rows. The model runs in
evaluation mode: without dropout, and with the batch statistics that it predicts with.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

MOST = 3
MEMORY = 20_000_000

Criterion = Callable[[Tensor, Tensor], Tensor]
Examples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Voices:
    """Places among the checked rows with their products: the most negative first, the largest first."""

    against: tuple[tuple[int, float], ...]
    backing: tuple[tuple[int, float], ...]


def gradient_products(
    model: nn.Module, criterion: Criterion, rows: Examples, checked: Examples
) -> Tensor:
    """The products [k, m] of k rows with m checked ones, each (inputs, targets).

    `criterion(outputs [n, ...], targets [n]) -> [n]`. Parameters that are not trained have no part.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        blocks = [
            torch.cat([mine @ theirs.T for theirs in _gradients(model, criterion, checked)], 1)
            for mine in _gradients(model, criterion, rows)
        ]
    finally:
        for module, mode in modes.items():
            module.training = mode
    return torch.cat(blocks)


def _gradients(model: nn.Module, criterion: Criterion, examples: Examples) -> Iterator[Tensor]:
    """The gradients of the examples' losses [b, parameters], block by block."""
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    rest |= dict(model.named_buffers())

    def loss(trained: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(model, {**rest, **trained}, (inputs[None],))
        return criterion(outputs, target[None])[0]

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    size = max(1, MEMORY // max(1, sum(p.numel() for p in trained.values())))
    for inputs, targets in zip(*(part.split(size) for part in examples), strict=True):
        try:
            found = each(trained, inputs, targets)
        except RuntimeError:  # a model that vmap does not follow, as one with an LSTM
            yield _one_by_one(model, criterion, inputs, targets)
        else:
            yield torch.cat([found[name].flatten(1) for name in trained], 1)


def _one_by_one(model: nn.Module, criterion: Criterion, inputs: Tensor, targets: Tensor) -> Tensor:
    trained = [p for p in model.parameters() if p.requires_grad]
    rows = []
    with torch.enable_grad():
        for k in range(len(inputs)):
            loss = criterion(model(inputs[k : k + 1]), targets[k : k + 1])[0]
            found = torch.autograd.grad(loss, trained, allow_unused=True)
            pairs = zip(found, trained, strict=True)
            rows.append(
                torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])
            )
    return torch.stack(rows)


def strongest(products: Tensor, *, most: int = MOST) -> Voices:
    """The strongest on either side, of products [m] with one training row; zero is on neither."""
    order = products.argsort(stable=True).tolist()
    values = products.tolist()
    against = [(place, values[place]) for place in order[:most] if values[place] < 0]
    backing = [(place, values[place]) for place in order[::-1][:most] if values[place] > 0]
    return Voices(tuple(against), tuple(backing))
