"""Batches of another size each step: as exact as ever, and without a trial for every size."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

import reweigh
from reweigh.core.backends.ghost import engine, one_pass
from support import definition
from support.problems import (
    CLASSES,
    Encoder,
    Residual,
    cross_entropy,
    images,
    labelled,
    mlp,
    tokens,
)

STEPS = 40


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, CLASSES)
    )  # which holds less in two passes


def double(batch):
    return tuple(x.double() if x.is_floating_point() else x for x in batch)


CASES = {
    "one pass": (mlp, lambda n: labelled(n, 8)),
    "many divisors": (
        lambda: nn.Sequential(
            nn.Linear(8, 120), nn.Tanh(), nn.Linear(120, 84), nn.Linear(84, CLASSES)
        ),
        lambda n: labelled(n, 8),
    ),
    "two passes": (convolutions, images),
    "sequence first": (lambda: Encoder(0.0, False), tokens),
    "forward mode": (Residual, lambda n: images(n, 3)),
}


def sizes() -> list[tuple[int, int]]:
    draw = random.Random(1)
    return [(draw.randint(2, 40), draw.randint(2, 20)) for _ in range(STEPS)]


@pytest.mark.parametrize("name", CASES)
def test_every_size_is_exact_and_few_are_measured(name, monkeypatch):
    make, batch = CASES[name]
    torch.manual_seed(0)
    model = make().double()
    measured = []
    for module in (engine, one_pass):
        looked = module.require_update
        monkeypatch.setattr(
            module, "require_update", lambda *a, f=looked, **k: (measured.append(1), f(*a, **k))
        )
    weigh = reweigh.Reweighter(model, cross_entropy, safeguard=None)
    for n, m in sizes():
        train, clean = double(batch(n)), double(batch(m))
        expected = definition.scores(model, cross_entropy, train, clean)
        assert torch.allclose(weigh(train, clean).scores, expected, rtol=1e-8, atol=1e-12)
    # The 1st, 2nd, 4th, ... use is looked at, whatever the sizes; and sizes that a dimension has, too.
    assert len(measured) <= (8 if name == "many divisors" else 16)


def test_whether_one_pass_pays_is_known_without_a_pass(monkeypatch):
    """One call of the model per batch, in a step that is not due, though its size is new."""
    model, calls, forward = convolutions(), [], nn.Conv2d.forward
    monkeypatch.setattr(
        nn.Conv2d, "forward", lambda layer, x: (calls.append(len(x)), forward(layer, x))[1]
    )
    weigh = reweigh.Reweighter(model, cross_entropy, one_pass=True)
    for _ in range(5):
        weigh(images(30), images(5))
    for n, m in ((29, 5), (28, 6), (31, 4)):
        calls.clear()
        weigh(images(n), images(m))
        assert sorted(calls) == [m, n]


@pytest.mark.parametrize("first", [(30, 5), (7, 3), (64, 64)])
def test_the_outline_of_any_pass_gives_the_same_answers(first):
    """So that a run that is resumed at another batch has the same bits."""
    wanted = {(n, m) for n in (2, 6, 20, 60) for m in (1, 5, 20, 60)}
    model = nn.Sequential(nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, CLASSES))
    theta = tuple(model.parameters())

    def answers(n, m):
        losses = cross_entropy(model, labelled(n + m, 40))
        outline = one_pass.Outline.of(one_pass.read(losses, theta).contacts, n + m)
        return [one_pass._light(outline, theta, *sizes) for sizes in sorted(wanted)]

    mine = answers(*first)
    assert mine == answers(11, 2)
    assert {True, False} == set(mine)


class Folded(nn.Module):
    """Mixes pairs of examples, but only in batches of more than 20."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        h, pairs = self.body(x), 2 if len(x) > 20 else 1
        mean = h.view(-1, pairs, 6).mean(1, keepdim=True).expand(-1, pairs, 6).reshape(h.shape)
        return self.head((h + mean).tanh())


def test_sizes_that_couple_are_found_when_it_is_looked_at_again():
    """The operations are the same for all sizes, so that only looking tells; the second use looks."""
    model = Folded().double()
    weigh = reweigh.Reweighter(model, cross_entropy)
    for n in (10, 24):
        train, clean = double(labelled(n, 8)), double(labelled(4, 8))
        expected = definition.scores(model, cross_entropy, train, clean)
        assert torch.allclose(weigh(train, clean).scores, expected, rtol=1e-8, atol=1e-12)
    assert weigh.backend == "forward_mode"


def test_nothing_grows_with_the_number_of_sizes():
    model = mlp()
    weigh = reweigh.Reweighter(model, cross_entropy)
    for n in range(2, 302):
        weigh(labelled(n, 8), labelled(2 + n % 97, 8))
    (state,) = weigh._session._states.values()
    ghost = state.selection.ghost
    kept = [
        ghost._records,
        ghost.one_pass._plans,
        ghost.one_pass._records,
        ghost.one_pass._outlines,
    ]
    assert all(len(part) <= 66 for part in kept)
    assert len(ghost.one_pass._outlines) == 1
