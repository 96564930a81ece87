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


def test_a_hook_of_a_parameter_that_no_chunk_uses_is_not_called():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.unused = nn.Linear(6, 3), nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self.layer(x)

    model = Idle().double()
    model.unused.register_hook(lambda g: 2 * g)  # was called with None
    reweigh.Reweighter(model, SQUARED, chunk=2)(numbers(5), numbers(4)).loss.backward()
    assert model.unused.grad is None
    assert model.layer.weight.grad is not None


def test_copies_of_a_batch_have_the_gaps_of_the_batch():
    """A kernel reads a tensor with gaps from a copy of its own; of one without, it saves the tensor,
    and a later write to another row of the same memory is then an error."""
    model = nn.Sequential(
        nn.ELU(inplace=True), nn.InstanceNorm1d(2, affine=True), nn.Flatten(), nn.Linear(6, 3)
    ).double()

    def one_by_one(model, batch):
        return torch.cat([SQUARED(model, (x[None], y[None])) for x, y in zip(*batch, strict=True)])

    def gapped(n: int):
        return torch.randn(n, 2, 3, 2).double()[..., 0], torch.randn(n, 3).double()

    train, clean = gapped(4), gapped(3)

    def copied(batch):
        return torch.stack([batch[0], batch[0]], -1)[..., 0], batch[1]

    right = definition.scores(model, one_by_one, copied(train), copied(clean))
    step = reweigh.Reweighter(model, one_by_one)(train, clean)
    step.loss.backward()
    assert torch.allclose(step.scores, right, rtol=1e-9)


def test_chunks_of_a_list_of_inputs_of_other_sizes():
    """One entry per example, though their first dimensions are no number of examples."""
    model = nn.Linear(6, 3).double()

    def loss(model, batch):
        means = torch.stack([x.mean(0) for x in batch["images"]])
        return (model(means) - batch["y"]).square().mean(1)

    def batch(n: int):
        return {
            "images": [torch.randn(7 + i, 6).double() for i in range(n)],
            "y": torch.randn(n, 3).double(),
        }

    train, clean = batch(5), batch(3)
    right = definition.scores(model, loss, train, clean)
    found = reweigh.Reweighter(model, loss, chunk=2)(train, clean).scores
    assert torch.allclose(found, right, rtol=1e-9)


@pytest.mark.parametrize("backend", ["forward_mode", "auto"])
def test_a_small_term_that_a_function_hides_is_seen_in_float32(backend):
    """The hidden parameter has a small part of the gradient: less than was allowed to float32."""

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x)
            return x * w

        @staticmethod
        def backward(ctx, g):
            return None, (g * ctx.saved_tensors[0]).sum(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.gain = nn.Linear(6, 3), nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return self.body(x) + 0.2 * Hidden.apply(x[:, :3], self.gain)

    torch.manual_seed(1)
    model = Model()
    train, clean = ((x.float(), y.float()) for x, y in (numbers(6), numbers(4)))
    right = definition.scores(model, SQUARED, train, clean)
    weigh = reweigh.Reweighter(model, SQUARED, backend=backend)
    if backend == "forward_mode":
        with pytest.raises(UnsupportedModelError, match=r"autograd\.Function"):
            weigh(train, clean)
    else:
        assert torch.allclose(weigh(train, clean).scores.double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["ghost", "auto"])
def test_a_hidden_parameter_whose_gradient_is_zero_at_first(backend):
    """A comparison sees nothing while its part is switched off; the graph shows that it is there."""

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.t(), x.t() @ g

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.w, self.share = nn.Linear(6, 3), nn.Parameter(torch.randn(6, 3)), 0.0

        def forward(self, x):
            return self.body(x) + self.share * Hidden.apply(x, self.w)

    model = Model().double()
    weigh = reweigh.Reweighter(model, SQUARED, backend=backend)
    for share in (0.0, 0.0, 1.0):  # looked at in the first two steps
        model.share = share
        train, clean = numbers(6), numbers(4)
        if backend == "ghost":
            with pytest.raises(
                UnsupportedModelError, match="'w' is used in a way ghost cannot see"
            ):
                weigh(train, clean)
        else:
            right = definition.scores(model, SQUARED, train, clean)
            assert torch.allclose(weigh(train, clean).scores, right, rtol=1e-9)


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
