"""Scores in the optimizer's own geometry, against what a step of that optimizer does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import reweigh
from reweigh.errors import SettingError

LOSS = reweigh.per_example(functional.cross_entropy)
OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.5, 0.8)),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, eps=1e-4),
    "centered": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
}


def problem():
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    train, clean = ((torch.randn(n, 3).double(), torch.randint(4, (n,))) for n in (6, 5))
    return model, train, clean


def stepped(optimizer, model, train, times: int = 3) -> None:
    for k in range(times):
        optimizer.zero_grad()
        LOSS(model, (train[0] + k, train[1])).mean().backward()
        optimizer.step()
    optimizer.zero_grad()


def frozen_step(optimizer, model, gradient) -> list[torch.Tensor]:
    """How far the optimizer would move per unit of `gradient`, its denominators held still."""
    reach = []
    for scale in (0.0, 1e-9):  # too small to change the denominators
        moved_model, moved = copy.deepcopy((model, optimizer))
        for group in moved.param_groups:
            group["weight_decay"] = 0.0
        for p, g in zip(moved_model.parameters(), gradient, strict=True):
            p.grad = scale * g
        moved.step()
        reach.append([p.detach() for p in moved_model.parameters()])
    return [(b - a) / 1e-9 for a, b in zip(*reach, strict=True)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scores_are_how_a_step_of_the_optimizer_changes_the_clean_loss(name):
    model, train, clean = problem()
    optimizer = OPTIMIZERS[name](model.parameters())
    stepped(optimizer, model, train)
    scores = reweigh.Reweighter(model, LOSS, geometry=optimizer, safeguard=None)(
        train, clean
    ).scores
    theta = list(model.parameters())
    goal = torch.autograd.grad(LOSS(model, clean).mean(), theta)
    changes = []
    for row in range(6):
        alone = (train[0][row : row + 1], train[1][row : row + 1])
        gradient = torch.autograd.grad(LOSS(model, alone).sum(), theta)
        move = frozen_step(optimizer, model, gradient)
        changes.append(-sum((m * g).sum() for m, g in zip(move, goal, strict=True)))
    expected = torch.stack(changes)
    # equal up to one factor: the learning rate, the decay of momentum, the bias correction
    torch.testing.assert_close(
        scores / scores.norm(), expected / expected.norm(), atol=2e-3, rtol=2e-3
    )


@pytest.mark.parametrize("backend", ["auto", "double_backward", "forward_mode", "ghost"])
def test_scores_are_those_of_the_formula(backend):
    model, train, clean = problem()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-5)
    stepped(optimizer, model, train)
    weigh = reweigh.Reweighter(model, LOSS, geometry=optimizer, backend=backend)
    found = weigh(train, clean).scores
    theta = list(model.parameters())
    goal = torch.autograd.grad(LOSS(model, clean).mean(), theta)
    for row in range(6):
        alone = (train[0][row : row + 1], train[1][row : row + 1])
        gradient = torch.autograd.grad(LOSS(model, alone).sum(), theta)
        expected = 0.0
        for p, g, h in zip(theta, gradient, goal, strict=True):
            v = optimizer.state[p]["exp_avg_sq"] / (1 - 0.999**3)
            expected += float((g * h / (v.sqrt() + 1e-5)).sum())
        assert float(found[row]) == pytest.approx(expected, rel=1e-8)


def test_before_the_first_step_and_for_sgd_the_geometry_is_plain():
    model, train, clean = problem()
    plain = reweigh.Reweighter(model, LOSS)(train, clean)
    for optimizer in (torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters())):
        found = reweigh.Reweighter(model, LOSS, geometry=optimizer)(train, clean)
        torch.testing.assert_close(found.scores, plain.scores)
        torch.testing.assert_close(found.factor, plain.factor)


def test_groups_count_by_their_learning_rates():
    model, train, clean = problem()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "lr": 0.05},
    ]
    found = reweigh.Reweighter(model, LOSS, geometry=torch.optim.SGD(groups))(train, clean).scores
    parts = [reweigh.example_scores(model, LOSS, train, clean, params=name) for name in ("0", "2")]
    torch.testing.assert_close(found, parts[0] + parts[1] / 2)
    only = torch.optim.SGD(model[2].parameters(), lr=0.05)  # what it does not hold, it cannot move
    found = reweigh.Reweighter(model, LOSS, geometry=only)(train, clean).scores
    torch.testing.assert_close(found, parts[1])


def test_the_safeguard_measures_in_the_same_geometry():
    """factor = min(1, <g, d>_P / (2 <d, d>_P)) while there is no trust yet."""
    model, train, clean = problem()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    stepped(optimizer, model, train)
    step = reweigh.Reweighter(model, LOSS, geometry=optimizer)(train, clean)
    theta = list(model.parameters())
    d = torch.autograd.grad((step.weights * LOSS(model, train)).sum(), theta)
    length = 0.0
    for p, g in zip(theta, d, strict=True):
        v = optimizer.state[p]["exp_avg_sq"] / (1 - 0.999**3)
        length += float((g.square() / (v.sqrt() + 1e-8)).sum())
    slope = float((step.weights * step.scores).sum())
    assert float(step.factor) == pytest.approx(max(0.01, min(1, slope / (2 * length))), rel=1e-6)


def test_a_function_of_ones_own_and_what_is_refused():
    model, train, clean = problem()
    twice = reweigh.Reweighter(model, LOSS, geometry=lambda p: torch.full_like(p, 2.0))
    plain = reweigh.Reweighter(model, LOSS)
    torch.testing.assert_close(twice(train, clean).scores, 2 * plain(train, clean).scores)
    with pytest.raises(SettingError, match=r"geometry=Rprop.*expected one of Adam, "):
        reweigh.Reweighter(model, LOSS, geometry=torch.optim.Rprop(model.parameters()))
