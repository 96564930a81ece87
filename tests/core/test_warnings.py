"""A warning names the line of the user's program that led to it, however deep it is raised."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.errors import ReweighWarning

LOSS = reweigh.per_example(F.cross_entropy)


def batch(n: int):
    return torch.randn(n, 4), torch.randint(3, (n,))


def line_of(call) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReweighWarning)
        call()
    (warning,) = [w for w in caught if issubclass(w.category, ReweighWarning)]
    return warning.filename


def test_a_forgotten_eval_mode():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    weigh = reweigh.Reweighter(model, LOSS)
    assert line_of(lambda: weigh(batch(6), batch(4))) == __file__


def test_weights_that_collapse():
    model = nn.Linear(4, 3)
    weigh = reweigh.Reweighter(model, LOSS, rule=torch.zeros_like)
    train, clean = batch(6), batch(4)

    def steps() -> None:
        for _ in range(50):
            weigh(train, clean)

    assert line_of(steps) == __file__


class OneWay(torch.autograd.Function):
    """Cannot be differentiated twice, nor forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] > 0)


class Coupled(nn.Module):
    """No exact back-end can follow it: coupled through a function that has one derivative only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(OneWay.apply(self.first(x) - self.first(x).mean(0)))


@pytest.mark.parametrize("entry", ["weigh", "scores"])
def test_nothing_exact(entry):
    weigh = reweigh.Reweighter(Coupled(), LOSS)
    calls = {
        "weigh": lambda: weigh(batch(6), batch(4)),
        "scores": lambda: reweigh.example_scores(weigh.model, LOSS, batch(6), batch(4)),
    }
    assert line_of(calls[entry]) == __file__
