"""Models that used to be refused although they are fine: exact by the cheapest back-end that can."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from support import definition

LOSS = reweigh.per_example(F.cross_entropy)
EXACT = [name for name, kind in BACKENDS.items() if kind.exact]


def tokens(n: int):
    return torch.randint(11, (n, 6)), torch.randint(3, (n,))


def vectors(n: int):
    return torch.randn(n, 8).double(), torch.randint(3, (n,))


def sequences(n: int):
    return torch.randn(n, 9, 8).double(), torch.randint(1, 5, (n, 3))


class Words(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.head = table, nn.Linear(6, 3)

    def forward(self, x):
        rows = self.table(x)
        return self.head(rows.mean(1) if rows.ndim == 3 else rows)


class Weighted(nn.Module):
    """Every word has a trained weight in the sum of its bag."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.weights = nn.EmbeddingBag(11, 6, mode="sum"), nn.Embedding(11, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.bag(x, per_sample_weights=self.weights(x).squeeze(-1)))


class Prototypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.places = nn.Linear(8, 6), nn.Parameter(torch.randn(3, 6))

    def forward(self, x):
        return -torch.cdist(self.body(x), self.places)


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, x):
        return self.last(self.norm(self.first(x).transpose(1, 2)).transpose(1, 2).relu())


def ctc(model, batch):
    x, y = batch
    outputs = model(x).log_softmax(-1).transpose(0, 1)
    lengths = torch.full((len(x),), len(outputs)), torch.full((len(x),), y.shape[1])
    return F.ctc_loss(outputs, y, *lengths, reduction="none")


def normed(*first: nn.Module, features: int = 8) -> nn.Sequential:
    return nn.Sequential(*first, nn.BatchNorm1d(features), nn.Linear(features, 3))


def listening(model: nn.Sequential) -> nn.Sequential:
    model[-2].register_full_backward_hook(lambda *_: None)
    model[-1].register_full_backward_hook(lambda *_: None)
    return model


def table(**options: Any) -> nn.Module:
    return Words(nn.Embedding(11, 6, **options))


def bag(**options: Any) -> nn.Module:
    return Words(nn.EmbeddingBag(11, 6, **options))


CASES = {
    "scale_grad_by_freq": (lambda: table(scale_grad_by_freq=True), LOSS, tokens, "ghost"),
    "scale_grad_by_freq, padding": (
        lambda: table(scale_grad_by_freq=True, padding_idx=1), LOSS, tokens, "ghost",
    ),
    "scale_grad_by_freq, BatchNorm": (
        lambda: normed(table(scale_grad_by_freq=True), features=3), LOSS, tokens, "forward_mode",
    ),
    "bag, scale_grad_by_freq": (
        lambda: bag(scale_grad_by_freq=True, mode="mean"), LOSS, tokens, "ghost",
    ),
    "bag of the largest": (lambda: bag(mode="max"), LOSS, tokens, "ghost"),
    "bag of the largest, BatchNorm": (
        lambda: normed(bag(mode="max"), features=3), LOSS, tokens, "forward_mode",
    ),
    "trained per_sample_weights": (Weighted, LOSS, tokens, "ghost"),
    "trained per_sample_weights, BatchNorm": (
        lambda: normed(Weighted(), features=3), LOSS, tokens, "forward_mode",
    ),
    "cdist": (Prototypes, LOSS, vectors, "ghost"),
    "cdist, BatchNorm": (lambda: normed(nn.Linear(8, 8), Prototypes(), features=3), LOSS, vectors,
                         "forward_mode"),
    "CTC, BatchNorm": (Speech, ctc, sequences, "forward_mode"),
    "multi_margin_loss, BatchNorm": (
        lambda: normed(nn.Linear(8, 8)), reweigh.per_example(F.multi_margin_loss), vectors,
        "forward_mode",
    ),
    "backward hooks": (lambda: listening(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))),
                       LOSS, vectors, "ghost"),
    "backward hooks, BatchNorm": (lambda: listening(normed(nn.Linear(8, 8))), LOSS, vectors,
                                  "forward_mode"),
}  # fmt: skip


def made(name: str):
    torch.manual_seed(0)
    make, loss, batch, cheapest = CASES[name]
    return make().double(), loss, batch(16), batch(6), cheapest


@pytest.mark.parametrize("name", CASES)
def test_the_cheapest_exact_back_end_runs_it(name):
    model, loss, train, clean, cheapest = made(name)
    weigh = reweigh.Reweighter(model, loss, safeguard=None)
    for _ in range(3):
        step = weigh(train, clean)
        assert weigh.backend == cheapest, weigh.backend.reason
        model.zero_grad()
        step.loss.backward()
        assert torch.allclose(step.scores, definition.scores(model, loss, train, clean))
    assert step.weights.any()
    right = definition.weighted_gradient(model, loss, train, step.weights)
    for p, gradient in zip(model.parameters(), right, strict=True):
        assert torch.allclose(p.grad, gradient)


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("name", CASES)
def test_every_back_end_agrees_or_refuses_by_name(name, backend):
    model, loss, train, clean, cheapest = made(name)
    try:
        scores = reweigh.example_scores(model, loss, train, clean, backend=backend)
    except UnsupportedModelError:
        assert backend != cheapest
    else:
        assert torch.allclose(scores, definition.scores(model, loss, train, clean))


def test_forward_mode_does_not_take_a_view_under_no_grad_for_a_hook():
    """Only the copies that PyTorch makes for backward hooks carry on what autograd would."""

    class Stopping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)
            self.first, self.last = listening(nn.Sequential(*layers)), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x)
            with torch.no_grad():
                stopped = h.view(-1, 8)
            return self.last(h.tanh() * stopped)

    torch.manual_seed(0)
    model, train, clean = Stopping().double(), vectors(16), vectors(6)
    scores = reweigh.example_scores(model, LOSS, train, clean, backend="forward_mode")
    assert torch.allclose(scores, definition.scores(model, LOSS, train, clean))


class Tokens(nn.Module):
    """A class token that is laid out once per example."""

    def __init__(self, lay_out) -> None:
        super().__init__()
        self.token, self.lay_out = nn.Parameter(torch.randn(1, 1, 8)), lay_out
        self.body = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        tokens = torch.cat([self.lay_out(self.token, len(x)), x[:, :4]], 1)
        return self.head(self.body(tokens)[:, 0])


class Started(nn.Module):
    """A trained first state, with the batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.body = nn.Parameter(torch.randn(1, 8)), nn.RNN(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x, self.start.expand(len(x), 8)[None])[0][:, -1])


class Elsewhere(nn.Module):
    """A parameter that is expanded, and not over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.body = nn.Parameter(torch.randn(1)), nn.Linear(8, 3)

    def forward(self, x):
        return self.body(x * self.scale.expand(8))


def sequence_labels(n: int):
    return torch.randn(n, 9, 8).double(), torch.randint(3, (n,))


def layers(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, 16), nn.Unflatten(1, (4, 4)), *middle, nn.Flatten(), nn.Linear(16, 3)
    )


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.pair = nn.Linear(8, 6), nn.Bilinear(8, 6, 3)

    def forward(self, x):
        return self.pair(x, self.first(x).tanh())


READ = {
    "class token, expanded": (lambda: Tokens(lambda t, n: t.expand(n, -1, -1)), sequence_labels),
    "class token, repeated": (lambda: Tokens(lambda t, n: t.repeat(n, 1, 1)), sequence_labels),
    "class token, from a vector": (
        lambda: Tokens(lambda t, n: t.view(8)[None, None].expand(n, 1, 8)), sequence_labels,
    ),
    "GroupNorm": (lambda: layers(nn.GroupNorm(2, 4), nn.ReLU()), vectors),
    "InstanceNorm": (lambda: layers(nn.InstanceNorm1d(4, affine=True), nn.ReLU()), vectors),
    "RMSNorm": (lambda: layers(nn.RMSNorm(4), nn.ReLU()), vectors),
    "LocalResponseNorm": (lambda: layers(nn.LocalResponseNorm(2)), vectors),
    "PReLU": (lambda: layers(nn.PReLU(4)), vectors),
    "Bilinear": (Pairs, vectors),
}  # fmt: skip
WATCHED = {
    "first state": (Started, sequence_labels),
    "expanded elsewhere": (Elsewhere, vectors),
}


@pytest.mark.parametrize("n", [16, 8])
@pytest.mark.parametrize("name", [*READ, *WATCHED])
def test_ghost_reads_layers_off_the_graph(name, n):
    torch.manual_seed(0)
    make, batch = {**READ, **WATCHED}[name]
    model = make().double()
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None, one_pass=False)
    for _ in range(3):
        train, clean = batch(n), batch(6)
        step = weigh(train, clean)
        model.zero_grad()
        step.loss.backward()
        assert torch.allclose(step.scores, definition.scores(model, LOSS, train, clean))
        right = definition.weighted_gradient(model, LOSS, train, step.weights)
        for p, gradient in zip(model.parameters(), right, strict=True):
            assert torch.allclose(p.grad, gradient, atol=1e-12)
    assert weigh.backend == "ghost"
    assert name in WATCHED or "whose graph is read" in weigh.backend.reason
