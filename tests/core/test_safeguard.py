"""The safeguard scales the gradient by a factor in [0, 1], from nothing but the clean loss and d."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

import reweigh
from reweigh.core.model.parameters import Direction
from reweigh.core.safeguard import Backtracking, safe_step
from support import definition
from support.problems import cross_entropy, mlp, vectors

NOWHERE = Direction((), (), ())


def feed(losses, slope=1.0, square=100.0):
    """The factors for a sequence of clean losses, with <grad G, d> and |d|^2 held fixed."""
    guard = Backtracking()
    d = [torch.tensor([square**0.5])]
    return [
        float(guard(torch.tensor(loss), NOWHERE, torch.tensor(slope), lambda: d)) for loss in losses
    ]


def test_full_trust_after_two_hundred_good_steps():
    factors = feed([2.0 / (1 + t) for t in range(250)])
    assert factors[0] == pytest.approx(0.01)
    assert all(later >= earlier for earlier, later in pairwise(factors))
    assert factors[99] == pytest.approx(0.5, rel=0.03)
    assert factors[200:] == [1.0] * 50


def test_trust_falls_to_the_safe_step_when_the_clean_loss_climbs_back():
    factors = feed([2.0] + [0.1] * 299 + [1.0] * 100)
    assert factors[299] == 1.0
    assert factors[-1] == pytest.approx(
        0.5 * 1.0 / 100.0
    )  # half the projection <grad G, d> / |d|^2


def test_trust_lost_late_comes_back_late():
    losses = [2.0] + [0.1] * 299 + [1.0] * 20 + [0.1] * 500
    factors = feed(losses, slope=0.0)
    lowest = min(factors[300:])
    at = factors.index(lowest)
    doubled = next(i for i in range(at, len(factors)) if factors[i] >= 2 * lowest)
    assert doubled - at == pytest.approx(at, rel=0.1)


def test_scaling_or_shifting_the_loss_changes_nothing():
    torch.manual_seed(0)
    losses = (2.0 * torch.exp(-torch.arange(200) / 30) + 0.2 * torch.rand(200)).double()
    plain = feed(losses.tolist())
    assert feed((losses * 1024).tolist()) == pytest.approx(plain)
    assert feed((losses - 8).tolist()) == pytest.approx(plain, rel=0.2)  # up to rounding


def test_the_safe_step_is_half_the_projection_and_never_more_than_one():
    d = [torch.tensor([3.0, 4.0]), None]
    assert float(safe_step(d, torch.tensor(5.0))) == pytest.approx(0.5 * 5 / 25)
    assert float(safe_step(d, torch.tensor(1e6))) == 1
    assert float(safe_step([torch.zeros(2)], torch.tensor(0.0))) == 1
    assert float(safe_step([None], torch.tensor(0.0))) == 1


@pytest.mark.parametrize("backend", ["ghost", "forward_mode", "double_backward"])
def test_it_multiplies_the_gradient_and_nothing_else(backend):
    model = mlp().double()
    (x, y), (cx, cy) = vectors(6), vectors(4)
    train, clean = (x.double(), y), (cx.double(), cy)
    guarded = reweigh.Reweighter(model, cross_entropy, backend=backend)(train, clean)
    literal = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=None)(
        train, clean
    )
    assert 0 < float(guarded.factor) < 1
    assert float(literal.factor) == 1
    for name in ("weights", "scores", "losses", "clean_loss"):
        assert torch.equal(getattr(guarded, name), getattr(literal, name)), name
    assert torch.allclose(guarded.loss.detach(), literal.loss.detach())
    (2 * guarded.loss).backward()
    expected = definition.weighted_gradient(model, cross_entropy, train, literal.weights)
    for p, g in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, 2 * guarded.factor * g, rtol=1e-6)


def test_with_full_trust_the_step_is_the_literal_one_to_the_bit():
    def run(safeguard):
        torch.manual_seed(1)
        model = mlp()
        update = torch.optim.SGD(model.parameters(), lr=0.01)
        reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=safeguard)
        if safeguard is not None:  # as after two hundred quiet steps
            one = torch.tensor(1.0)
            reweighter.load_state_dict(
                {"step": one * 200, "start": one * 1e6, "best": one, "smooth": one, "trust": one}
            )
        for _ in range(20):
            update.zero_grad()
            step = reweighter(vectors(8), vectors(4))
            assert float(step.factor) == 1
            step.loss.backward()
            update.step()
        return [p.detach() for p in model.parameters()]

    for p, q in zip(run("auto"), run(None), strict=True):
        assert torch.equal(p, q)


def test_its_state_can_be_saved_and_resumed():
    losses = [2.0, 1.0, 0.5, 0.7, 0.9, 0.4]
    d, slope = [torch.ones(4)], torch.tensor(0.1)
    through = Backtracking()
    factors = [float(through(torch.tensor(v), NOWHERE, slope, lambda: d)) for v in losses]
    first = Backtracking()
    for v in losses[:3]:
        first(torch.tensor(v), NOWHERE, slope, lambda: d)
    second = Backtracking()
    second.load_state_dict(first.state_dict())
    assert [
        float(second(torch.tensor(v), NOWHERE, slope, lambda: d)) for v in losses[3:]
    ] == factors[3:]
    reweighter = reweigh.Reweighter(nn.Linear(8, 4), cross_entropy)
    reweighter(vectors(4), vectors(4))
    other = reweigh.Reweighter(nn.Linear(8, 4), cross_entropy)
    other.load_state_dict(reweighter.state_dict())
    assert other.state_dict() == reweighter.state_dict()


def test_a_rate_that_destroys_the_literal_rule_does_not_destroy_the_guarded_one():
    """Digits, learning rate .3 with momentum .9: the smallest form of benchmarks/stability.py."""
    from reweigh import data

    digits = data.load("digits")
    recipe = data.Recipe("digits", "uniform_flip", rate=0.4, clean_per_class=5)
    task = data.prepare(digits, recipe, seed=0)
    options = data.BatchOptions(size=50, clean_size=50, peak=digits.peak)
    test = task.test.examples()

    def accuracy(safeguard):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
            nn.Linear(128, 10),
        )  # fmt: skip
        update = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=safeguard)
        pairs = data.PairedBatches(task.train, task.clean, seed=0, options=options)
        for pair in pairs.until(300):
            update.zero_grad()
            reweighter(pair.train, pair.clean).loss.backward()
            update.step()
        guess = model(test.inputs.float() / digits.peak).argmax(1)
        return float((guess == test.targets).float().mean())

    assert accuracy(None) < 0.5
    assert accuracy("auto") > 0.85
