"""What random models have shown (tests/fuzz), each by the smallest program that has the same cause."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from support import definition

SQUARED = reweigh.per_example(F.mse_loss)


def numbers(n: int, outputs: int = 3, inputs: int = 6):
    return torch.randn(n, inputs).double(), torch.randn(n, outputs).double()


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_a_hook_of_a_parameter_runs_once_for_all_chunks(backend):
    model = nn.Linear(6, 3).double()
    seen = []
    model.weight.register_hook(lambda g: seen.append(g.clone()) or 2 * g)
    weigh = reweigh.Reweighter(model, SQUARED, backend=backend, chunk=2, safeguard=None)
    train = numbers(5)
    step = weigh(train, numbers(4))
    step.loss.backward()
    handle = nn.Linear(6, 3).double()
    handle.load_state_dict(model.state_dict())
    right, _ = definition.weighted_gradient(handle, SQUARED, train, step.weights)
    assert len(seen) == 1
    assert torch.allclose(seen[0], right)
    assert torch.allclose(model.weight.grad, 2 * right)


def test_parameters_of_chunks_without_weight_have_a_gradient_of_zero():
    """As in plain training; None would switch off weight decay and momentum for them."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            return (self.first if x[0, 0] > 0 else self.second)(x)

    model = Gated().double()
    x, y = numbers(4)
    x[:, 0] = torch.tensor([1.0, 1.0, -1.0, -1.0])
    last = torch.tensor([1.0, 1.0, 0.0, 0.0]).double()
    weigh = reweigh.Reweighter(model, SQUARED, chunk=2, safeguard=None, rule=lambda s: last)
    weigh((x, y), (x[:2], y[:2])).loss.backward()
    assert model.first.weight.grad.abs().max() > 0
    assert torch.equal(model.second.weight.grad, torch.zeros(3, 6).double())


@pytest.mark.parametrize("backend", ["auto", "ghost"])
def test_one_pass_on_request_with_a_first_layer_in_place(backend):
    """The user's own batch was written to before one pass was given up; both passes then read that."""
    model = nn.Sequential(
        nn.LeakyReLU(0.2, inplace=True), nn.Linear(6, 24), nn.Linear(24, 3)
    ).double()

    def loss(model, batch):
        return (model(batch[0]) - batch[1]).square().mean(1)

    (x, y), clean = numbers(5), numbers(1)
    right = definition.scores(model, loss, (x.clone(), y), (clean[0].clone(), clean[1]))
    given = x.clone(), clean[0].clone()
    step = reweigh.Reweighter(model, loss, backend=backend, one_pass=True)((x, y), clean)
    assert torch.allclose(step.scores, right, rtol=1e-9)
    assert torch.equal(x, F.leaky_relu(given[0], 0.2))  # as after one forward
    assert torch.equal(clean[0], given[1])


@pytest.mark.parametrize("backend", ["ghost", "double_backward"])
def test_a_refusal_leaves_nothing_behind(backend):
    """ghost: BatchNorm couples the examples. double_backward: a function that has no second derivative."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * g

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))

        def forward(self, x):
            return Once.apply(self.body(x))

    model = Model().double()
    weigh = reweigh.Reweighter(model, SQUARED, backend=backend)
    before = torch.get_rng_state(), [b.clone() for b in model.buffers()]
    train, clean = numbers(5), numbers(4)
    torch.set_rng_state(before[0])
    with pytest.raises(UnsupportedModelError):
        weigh(train, clean)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(map(torch.equal, model.buffers(), before[1]))


class Distances(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.prototypes = nn.Linear(6, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return -torch.cdist(self.body(x), self.prototypes)


class Margins(nn.Module):
    """Under multi_margin_loss; with BatchNorm, so that ghost cannot be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x):
        return self.body(x)


def temporal(model, batch):
    x, y = batch
    steps = model(x).view(len(x), 1, 3).expand(-1, 4, -1).log_softmax(-1).transpose(0, 1)
    lengths = torch.full((len(x),), 4)
    return F.ctc_loss(
        steps, 1 + y[:, None] % 2, lengths, torch.ones_like(lengths), reduction="none"
    )


class Warped(nn.Module):
    """A spatial transformer behind BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.where, self.head = nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        z = self.norm(x)
        theta = torch.eye(2, 3).double() + 0.1 * self.where(z).view(-1, 2, 3)
        image = z.view(-1, 1, 2, 3)
        grid = F.affine_grid(theta, list(image.shape), align_corners=False)
        return self.head(F.grid_sample(image, grid, align_corners=False).flatten(1))


class OneLength(nn.Module):
    """weight_norm with one length for the whole weight: PyTorch's forward-mode formula for it fails."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        layer[2] = nn.utils.parametrizations.weight_norm(layer[2], dim=None)
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


class Packed(nn.Module):
    """Sequences of different lengths, packed, after a norm over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer, self.head = (
            nn.BatchNorm1d(6),
            nn.GRU(2, 3, batch_first=True),
            nn.Linear(3, 3),
        )

    def forward(self, x):
        lengths = 1 + torch.arange(len(x)) % 3
        rows = nn.utils.rnn.pack_padded_sequence(
            self.norm(x).view(-1, 3, 2), lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.layer(rows)[1][0])


def test_finite_difference_measures_its_error_over_parts():
    """A loss with several parts per example: [n, k] losses, scores and weights."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()

    def parts(model, batch):
        return (model(batch[0]) - batch[1]).square()

    train, clean = numbers(5), numbers(4)
    weigh = reweigh.Reweighter(model, parts, backend="finite_difference")
    found = weigh(train, clean).scores
    right = reweigh.Reweighter(model, parts, backend="double_backward")(train, clean).scores
    assert found.shape == (5, 3)
    assert torch.allclose(found, right, rtol=1e-5, atol=1e-6)


def labelled(n: int):
    return torch.randn(n, 6).double(), torch.randint(3, (n,))


CLASSES = reweigh.per_example(F.cross_entropy)
EXACT = {
    "prototypes by cdist": (Distances, CLASSES, "ghost"),
    "BatchNorm and multi_margin": (
        Margins,
        reweigh.per_example(F.multi_margin_loss),
        "forward_mode",
    ),
    "BatchNorm and CTC": (Margins, temporal, "forward_mode"),
    "BatchNorm and grid_sample": (Warped, CLASSES, "forward_mode"),
    "weight_norm with one length": (OneLength, CLASSES, "forward_mode"),
    "BatchNorm and packed sequences": (Packed, CLASSES, "forward_mode"),
}


@pytest.mark.parametrize(("make", "loss", "expected"), EXACT.values(), ids=EXACT)
def test_an_exact_back_end_follows(make, loss, expected):
    model, train, clean = make().double(), labelled(6), labelled(4)
    right = definition.scores(model, loss, train, clean)
    for backend in ("auto", expected):
        weigh = reweigh.Reweighter(model, loss, backend=backend)
        found = weigh(train, clean).scores
        assert torch.allclose(found, right, rtol=1e-8, atol=1e-10)
        assert weigh.backend.exact
