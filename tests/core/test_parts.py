"""Losses with k parts an example: scores and weights for every part, held to a loop over all losses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.audit import Ledger
from reweigh.errors import BatchError, LossShapeError
from support import definition

EXACT = ("auto", "ghost", "forward_mode", "double_backward")


class Tokens(nn.Module):
    """A small causal language model."""

    def __init__(self, words: int = 7, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.mix(self.table(x))[0])


def by_token(model, batch):
    """[n, T - 1]; padding, token 0, has loss 0 and no gradient."""
    (x,) = batch
    losses = F.cross_entropy(model(x[:, :-1]).mT, x[:, 1:], reduction="none")
    return losses * (x[:, 1:] != 0)


def by_task(model, batch):
    x, targets = batch
    return F.mse_loss(model(x), targets, reduction="none")


def by_candidate(model, batch):
    """The given label, and the model's own."""
    x, y = batch
    logits = model(x)
    own = logits.detach().argmax(1)
    return torch.stack([F.cross_entropy(logits, t, reduction="none") for t in (y, own)], dim=1)


def tokens(n: int):
    x = torch.randint(1, 7, (n, 6))
    x[: n // 2, 4:] = 0
    return (x,)


def tasks(n: int):
    return torch.randn(n, 5).double(), torch.randn(n, 3).double()


def labelled(n: int):
    return torch.randn(n, 5).double(), torch.randint(3, (n,))


def mlp(*extra: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), *extra, nn.Tanh(), nn.Linear(8, 3))


PROBLEMS = {
    "tokens": (Tokens, by_token, tokens),
    "tasks": (mlp, by_task, tasks),
    "candidates": (mlp, by_candidate, labelled),
    "batch norm": (lambda: mlp(nn.BatchNorm1d(8)), by_candidate, labelled),
    "dropout": (lambda: mlp(nn.Dropout(0.5)), by_candidate, labelled),
}


def brute_force(model, loss, train, clean):
    """[n, k], by a loop over every single loss."""
    shape = None

    def flat(model, batch):
        nonlocal shape
        values = loss(model, batch)
        shape = values.shape
        return values.flatten()

    scores = definition.scores(model, flat, train, clean)
    return scores.reshape(shape)


# Chunks are batches of their own to BatchNorm, and draw other numbers for dropout; ghost refuses
# coupled examples.
CASES = [
    (problem, backend, chunk)
    for problem in PROBLEMS
    for backend in EXACT
    for chunk in (None, 3)
    if (chunk is None or problem not in ("batch norm", "dropout"))
    and (problem, backend) != ("batch norm", "ghost")
]


@pytest.mark.parametrize(("problem", "backend", "chunk"), CASES)
def test_every_part_has_its_own_score(problem, backend, chunk):
    make, loss, draw = PROBLEMS[problem]
    torch.manual_seed(3)
    model = make().double()
    train, clean = draw(8), draw(4)
    weigh = reweigh.Reweighter(model, loss, backend=backend, safeguard=None, chunk=chunk)
    for _ in range(3):  # proven, then warm
        state = torch.get_rng_state()
        buffers = {name: b.clone() for name, b in model.named_buffers()}
        expected = brute_force(model, loss, train, clean)
        torch.set_rng_state(state)
        model.load_state_dict(buffers, strict=False)
        step = weigh(train, clean)
        assert step.scores.shape == step.losses.shape == step.weights.shape == expected.shape
        assert torch.allclose(step.scores, expected, rtol=1e-8, atol=1e-11)
        positive = expected.clamp(min=0)
        assert torch.allclose(step.weights, positive / positive.sum(), rtol=1e-7, atol=1e-10)
        model.zero_grad()
        step.loss.backward()
        torch.set_rng_state(state)
        truth = definition.weighted_gradient(model, loss, train, step.weights)
        for p, g in zip(model.parameters(), truth, strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-7, atol=1e-10)


def test_auto_takes_the_pass_that_has_all_parts_at_once():
    model = mlp().double()
    weigh = reweigh.Reweighter(model, by_task)
    weigh(tasks(6), tasks(4))
    assert weigh.backend == "forward_mode"


def test_auto_goes_by_part_where_tangents_cannot():
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(Odd.apply(self.a(x)))

    model = Net().double()
    weigh = reweigh.Reweighter(model, by_task, safeguard=None)
    train, clean = tasks(6), tasks(4)
    step = weigh(train, clean)
    expected = brute_force(model, by_task, train, clean)
    assert torch.allclose(step.scores, expected, rtol=1e-8, atol=1e-11)
    assert weigh.backend.exact


def test_padding_weighs_nothing():
    torch.manual_seed(0)
    model = Tokens().double()
    train = tokens(8)
    step = reweigh.Reweighter(model, by_token)(train, tokens(4))
    padding = train[0][:, 1:] == 0
    assert padding.any()
    assert not step.scores[padding].any()
    assert not step.weights[padding].any()
    assert float(step.weights.sum()) == pytest.approx(1)


def test_a_clean_batch_may_have_one_loss_per_example():
    """As checked rows have one label, and train rows several candidates."""

    def loss(model, batch):
        values = by_candidate(model, batch)
        return values[:, 0] if len(batch[1]) == 4 else values

    model = mlp().double()
    train, clean = labelled(8), labelled(4)
    step = reweigh.Reweighter(model, loss, safeguard=None)(train, clean)
    expected = brute_force(model, loss, train, clean)
    assert torch.allclose(step.scores, expected, rtol=1e-8, atol=1e-11)


def test_one_column_and_three_dimensions_are_mistakes():
    model = mlp()
    for change in (lambda v: v[:, :1], lambda v: v[:, :, None]):

        def loss(model, batch, change=change):
            return change(by_task(model, batch))

        batch = (torch.randn(6, 5), torch.randn(6, 3))
        with pytest.raises(LossShapeError, match="one value per example"):
            reweigh.Reweighter(model, loss)(batch, batch)


def test_a_rule_of_ones_own_sees_all_parts():
    model = mlp().double()
    rule = lambda scores: torch.softmax(scores.flatten(), 0).reshape(scores.shape)  # noqa: E731
    step = reweigh.Reweighter(model, by_task, rule=rule)(tasks(6), tasks(4))
    assert step.weights.shape == (6, 3)
    assert float(step.weights.sum()) == pytest.approx(1)
    assert "of 18" in repr(step)


def test_the_ledger_keeps_examples_and_parts():
    ledger = Ledger(4, parts=2)
    ledger.record(torch.tensor([0, 2]), torch.tensor([[0.5, 0.25], [0.0, 0.25]]),
                  torch.tensor([[1.0, 2.0], [-1.0, 0.5]]), torch.ones(2, 2))  # fmt: skip
    ledger.record(torch.tensor([0, 1]), torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    table = ledger.table()
    assert table["mean_weight"][:3].tolist() == [0.75, 2.0, 0.5]
    assert table["zero_share"][:3].tolist() == [0.5, 0.0, 0.0]
    assert table["mean_weight_0"][:3].tolist() == [0.5, 2.0, 0.0]
    assert table["mean_weight_1"][:3].tolist() == [0.25, 0.0, 0.5]
    assert table["last_score"][[0, 2]].tolist() == [3.0, -0.5]
    again = ledger.like()
    again.load_state_dict(ledger.state_dict())
    merged = again.merge(ledger).table()
    assert merged["mean_weight_0"][:3].tolist() == [0.5, 2.0, 0.0]
    with pytest.raises(BatchError, match="3 parts"):
        ledger.record(torch.tensor([0]), torch.zeros(1, 3))
