"""The checked rows that speak against a row are those whose gradients point the other way."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reweigh import per_example
from reweigh.audit import gradient_products, strongest
from support import definition


class Branches(nn.Sequential):
    """Which of its layers runs, the data say: nothing that vmap could follow."""

    def __init__(self):
        super().__init__(nn.Linear(8, 3), nn.Linear(8, 3))

    def forward(self, x):
        return torch.cat([self[int(row.sum() > 0)](row[None]) for row in x])


def problem(kind):
    torch.manual_seed(0)
    inner = {
        "mlp": [nn.Linear(8, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)],
        "batch norm": [nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)],
        "images": [
            nn.Unflatten(1, (2, 2, 2)),
            nn.Conv2d(2, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4, 3),
        ],
    }.get(kind)
    model = Branches() if inner is None else nn.Sequential(*inner)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.add_(torch.rand_like(buffer))
    loss = per_example(F.cross_entropy)
    checked = torch.randn(7, 8), torch.randint(3, (7,))
    rows = torch.randn(4, 8), torch.randint(3, (4,))
    return model, loss, rows, checked


def judged(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("memory", [1, 200, 10**6])
@pytest.mark.parametrize("kind", ["mlp", "batch norm", "images", "branches"])
def test_products_are_those_of_single_gradients(kind, memory, monkeypatch):
    monkeypatch.setattr("reweigh.audit.voices.MEMORY", memory)
    model, loss, rows, checked = problem(kind)
    model[-1].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = gradient_products(model, judged, rows, checked).double()
    assert model.training  # as it was before
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    single = [(rows[0][k : k + 1], rows[1][k : k + 1]) for k in range(4)]
    expected = torch.stack([definition.scores(model, loss, checked, row) for row in single])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert (expected < 0).any()
    assert (expected > 0).any()


def test_the_mean_of_the_products_is_the_score():
    model, loss, rows, checked = problem("mlp")
    model.eval()
    score = definition.scores(model, loss, rows, checked)
    means = gradient_products(model, judged, rows, checked).double().mean(1)
    torch.testing.assert_close(means, score, rtol=1e-4, atol=1e-6)


def test_the_strongest_come_first_and_silent_ones_are_no_voices():
    found = strongest(torch.tensor([0.5, -2.0, 0.0, 3.0, -4.0, 0.0]), most=3)
    assert found.against == ((4, -4.0), (1, -2.0))
    assert found.backing == ((3, 3.0), (0, 0.5))
    assert strongest(torch.tensor([1.0, 2.0, 3.0]), most=2).backing == ((2, 3.0), (1, 2.0))
