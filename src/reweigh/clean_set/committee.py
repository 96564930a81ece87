"""A committee: several small models, each trained on rows of its own.

The default members are perceptrons with one hidden layer. Their weights are stacked, so one batched
product trains all of them; Adam works element by element, so one Adam over the stack equals one Adam
per member. Models from a user's factory are trained one after the other.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

ModelFactory = Callable[[], nn.Module]
"""`factory() -> nn.Module`, fresh weights each time; it maps inputs [n, ...] to logits [n, classes]."""

Member = Callable[[Tensor], Tensor]
"""Inputs [n, ...] to probabilities [n, classes]."""

HIDDEN = 64
RATE = 3e-3
PART = 1024  # rows predicted at a time


def train_members(
    x: Tensor, y: Tensor, draws: Tensor, classes: int, factory: ModelFactory | None
) -> list[Member]:
    """One trained member for each of `draws` [members, steps, batch], the rows of its batches."""
    if factory is None:
        return _perceptrons(x.flatten(1), y, draws, classes)
    return [_member(x, y, rows, factory) for rows in draws]


def _member(x: Tensor, y: Tensor, draws: Tensor, factory: ModelFactory) -> Member:
    model = factory().train()
    update = torch.optim.Adam(model.parameters(), lr=RATE)
    for rows in draws:
        update.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        update.step()
    model.eval()
    return lambda rows: _in_parts(lambda part: model(part).softmax(1), rows)


def _perceptrons(x: Tensor, y: Tensor, draws: Tensor, classes: int) -> list[Member]:
    members, d = len(draws), x.shape[1]
    first = _uniform(members, d + 1, HIDDEN)
    second = _uniform(members, HIDDEN + 1, classes)
    update = torch.optim.Adam([first, second], lr=RATE)
    for rows in draws.transpose(0, 1):  # [members, batch]
        update.zero_grad()
        logits = _affine(_affine(x[rows], first).relu(), second)
        losses = functional.cross_entropy(logits.flatten(0, 1), y[rows].flatten(), reduction="none")
        losses.view(members, -1).mean(1).sum().backward()
        update.step()

    def member(number: int) -> Member:
        w, v = first[number : number + 1].detach(), second[number : number + 1].detach()
        return lambda rows: _in_parts(
            lambda part: _affine(_affine(part.flatten(1)[None], w).relu(), v)[0].softmax(1), rows
        )

    return [member(number) for number in range(members)]


def _affine(inputs: Tensor, weights: Tensor) -> Tensor:
    """Inputs [members, n, d] times weights [members, d + 1, h], whose last row is the bias."""
    return torch.baddbmm(weights[:, -1:], inputs, weights[:, :-1])


def _uniform(members: int, inputs: int, outputs: int) -> Tensor:
    bound = (inputs - 1) ** -0.5
    return torch.empty(members, inputs, outputs).uniform_(-bound, bound).requires_grad_()


def _in_parts(function: Member, rows: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([function(part) for part in rows.split(PART)])
