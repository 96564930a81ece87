"""Precision that no type of a parameter or loss tells: scores are right, and couplings are still found."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from reweigh.errors import UnsupportedModelError
from support import definition
from support.problems import Encoder, tokens

LOSS = reweigh.per_example(F.cross_entropy)
EXACT = ["ghost", "forward_mode", "double_backward"]
BF16 = 3e-2  # of scores: a few roundings to 8 bits, averaged over many products


def labelled(n: int, *shape: int, dtype: torch.dtype = torch.float32):
    return torch.randn(n, *(shape or (64,)), dtype=dtype), torch.randint(3, (n,))


def relative(mine: Tensor, true: Tensor) -> float:
    return float((mine.double() - true.double()).norm() / true.double().norm())


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def under_autocast(model, batch):
    with autocast():
        return LOSS(model, batch)


class Inside(nn.Module):
    """A model that chooses its precision by itself."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x):
        with autocast():
            return self.body(x).float()


class Coarser(nn.Module):
    """float64 outside, float32 inside: weights and activations are cast."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x):
        h = self.first(x).tanh()
        h = F.linear(h.float(), self.inner.weight.float(), self.inner.bias.float()).tanh()
        return self.last(h.to(x.dtype))


class Float32Product(torch.autograd.Function):
    """A kernel with a precision of its own, as fused attention is: its graph shows float64."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x.float() @ w.float()).double()

    @staticmethod
    def backward(ctx, g):
        _, w = ctx.saved_tensors
        return (g.float() @ w.t().float()).double(), None


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 3)
        self.register_buffer("kernel", torch.randn(32, 32) / 6)

    def forward(self, x):
        return self.last(Float32Product.apply(self.first(x).tanh(), self.kernel).tanh())


def net(*, norm: bool = True) -> nn.Sequential:
    middle = [nn.LayerNorm(256)] if norm else []
    return nn.Sequential(
        nn.Linear(64, 256), *middle, nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 3)
    )


def conv() -> nn.Sequential:
    """The bias of the convolution has no effect: its gradient is nothing but rounding."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(8, 8), nn.ReLU(),
        nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3),
    )  # fmt: skip


def deep() -> nn.Sequential:
    blocks = [
        layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU())
    ]
    return nn.Sequential(*blocks, nn.Linear(64, 3))


CASES = {
    "autocast in the loss": (net, under_autocast, torch.float32, BF16),
    "autocast in the loss, no norm": (lambda: net(norm=False), under_autocast, torch.float32, BF16),
    "autocast in the forward": (lambda: Inside(net()), LOSS, torch.float32, BF16),
    "autocast, convolution": (lambda: Inside(conv()), LOSS, torch.float32, BF16),
    "autocast, deep": (lambda: Inside(deep()), LOSS, torch.float32, 2 * BF16),
    "float32 inside": (Coarser, LOSS, torch.float64, 1e-5),
    "float32 hidden in a kernel": (Hidden, LOSS, torch.float64, 1e-5),
}


def made(name: str, n: int = 64):
    torch.manual_seed(0)
    make, loss, dtype, close = CASES[name]
    return make().to(dtype), loss, labelled(n, dtype=dtype), labelled(16, dtype=dtype), close


@pytest.mark.parametrize("n", [64, 2])
@pytest.mark.parametrize("name", CASES)
def test_auto_is_ghost_and_right_whatever_the_precision_inside(name, n):
    model, loss, train, clean, close = made(name, n)
    weigh = reweigh.Reweighter(model, loss, safeguard=None, rule=torch.ones_like)
    for _ in range(3):
        step = weigh(train, clean)
        assert weigh.backend == "ghost", weigh.backend.reason
        assert relative(step.scores, definition.scores(model, loss, train, clean)) <= close
    model.zero_grad()
    step.loss.backward()
    mine = torch.cat([p.grad.flatten() for p in model.parameters()])
    right = definition.weighted_gradient(model, loss, train, step.weights)
    assert relative(mine, torch.cat([g.flatten() for g in right])) <= close


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("name", CASES)
def test_every_back_end_agrees_or_refuses_whatever_the_precision_inside(name, backend):
    model, loss, train, clean, close = made(name)
    try:
        mine = reweigh.example_scores(model, loss, train, clean, backend=backend)
    except UnsupportedModelError:
        assert (name, backend) in {
            ("float32 hidden in a kernel", "forward_mode"),  # a Function without a formula
            ("float32 hidden in a kernel", "double_backward"),
        }
        return
    assert relative(mine, definition.scores(model, loss, train, clean)) <= close


NORMS = {
    "layer": lambda: nn.LayerNorm(16),
    "layer, of two dimensions": lambda: nn.LayerNorm((4, 16)),
    "layer, no bias": lambda: nn.LayerNorm(16, bias=False),
    "group": lambda: nn.GroupNorm(2, 4),
    "instance": lambda: nn.InstanceNorm1d(4, affine=True),
    "root mean square": lambda: nn.RMSNorm(16),
    "batch": lambda: nn.BatchNorm1d(4),
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("backend", ["forward_mode", "auto"])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_fed_by_a_bfloat16_layer(norm, backend):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 64), nn.Unflatten(1, (4, 16)), NORMS[norm](), nn.GELU(), nn.Flatten(), nn.Linear(64, 3)
    )  # fmt: skip
    train, clean = labelled(32), labelled(16)
    with autocast():
        weigh = reweigh.Reweighter(model, LOSS, backend=backend)
        mine, right = weigh(train, clean).scores, definition.scores(model, LOSS, train, clean)
    assert relative(mine, right) <= BF16
    assert weigh.backend == ("ghost" if backend == "auto" and norm != "batch" else "forward_mode")


class Mixed(nn.Module):
    """A small share of every row comes from its neighbour in the batch."""

    def __init__(self, body: nn.Module, share: float) -> None:
        super().__init__()
        self.body, self.share = body, share

    def forward(self, x):
        h = self.body(x)
        return (1 - self.share) * h + self.share * h.roll(1, 0)


def blended(share: float):
    """A coupling in the loss: every example's loss has a share of the batch's."""

    def loss(model, batch):
        losses = under_autocast(model, batch)
        return losses + share * losses.mean()

    return loss


@pytest.mark.parametrize("n", [3, 64])
@pytest.mark.parametrize("share", [0.5, 0.01])
@pytest.mark.parametrize("outer", [False, True], ids=["inside", "around the step"])
def test_a_coupling_does_not_hide_in_the_rounding_of_bfloat16(share, outer, n):
    torch.manual_seed(0)
    train, clean = labelled(n), labelled(16)
    for model, loss in (
        (Mixed(net(), share), under_autocast),
        (nn.Sequential(Mixed(net()[:2], share), *net()[2:]), under_autocast),
        (net(), blended(share)),
    ):
        with autocast() if outer else torch.enable_grad():
            with pytest.raises(UnsupportedModelError, match="coupled after"):
                reweigh.example_scores(model, loss, train, clean, backend="ghost")
            weigh = reweigh.Reweighter(model, loss)
            scores = weigh(train, clean).scores
            assert weigh.backend == "forward_mode"
            assert relative(scores, definition.scores(model, loss, train, clean)) <= BF16


def test_a_coupling_in_a_model_that_is_bfloat16_throughout():
    torch.manual_seed(0)
    model, close = Mixed(net(), 0.05).bfloat16(), reweigh.per_example(F.cross_entropy)
    train, clean = labelled(64, dtype=torch.bfloat16), labelled(16, dtype=torch.bfloat16)
    with pytest.raises(UnsupportedModelError, match="coupled after"):
        reweigh.example_scores(model, close, train, clean, backend="ghost")
    model.share = 0.0  # and without it, the same model passes
    reweigh.example_scores(model.body, close, train, clean, backend="ghost")


def test_a_backward_that_is_not_linear_is_not_taken_for_rounding():
    """Gradients that are normalised on their way back: every example's depends on the batch."""

    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 3)

        def forward(self, x):
            h = self.first(x).tanh()
            if h.requires_grad:
                h.register_hook(lambda g: g / g.norm())
            return self.last(h)

    torch.manual_seed(0)
    model, train, clean = Normalised(), labelled(32), labelled(16)
    with pytest.raises(UnsupportedModelError, match="coupled after"):
        reweigh.example_scores(copy.deepcopy(model), under_autocast, train, clean, backend="ghost")


QUOTIENTS = {
    "norms": (net, 3e-2),
    "no norm": (lambda: net(norm=False), 3e-2),
    "convolution": (conv, 5e-2),
    "transformer": (Encoder, 5e-2),
    "bends sharply": (deep, 1.0),
}


@pytest.mark.parametrize("where", ["inside", "around the step"])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_finite_difference_knows_the_precision_and_says_how_far_off_it_is(name, where):
    torch.manual_seed(0)
    make, close = QUOTIENTS[name]
    model, batch = make(), tokens if make is Encoder else labelled
    train, clean = batch(64), batch(16)
    loss = under_autocast if where == "inside" else LOSS
    with autocast() if where != "inside" else torch.enable_grad():
        weigh = reweigh.Reweighter(model, loss, backend="finite_difference")
        mine, right = weigh(train, clean).scores, definition.scores(model, loss, train, clean)
    error = relative(mine, right)
    assert error <= close
    (said,) = re.findall(r"off by ([0-9.e-]+) \(relative", weigh.backend.reason)
    assert error / 2.5 <= float(said) <= error * 2.5  # by eight random probes


def test_an_approximate_choice_says_its_error_in_numbers():
    class Doubled(torch.autograd.Function):
        """Cannot be followed by anything exact but ghost, which a coupling excludes."""

        @staticmethod
        def forward(ctx, x):
            return x.detach() * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 3)

        def forward(self, x):
            h = Doubled.apply(self.first(x)).tanh()
            return self.last(h - h.mean(0))

    torch.manual_seed(0)
    model, train, clean = Odd(), labelled(32), labelled(16)
    weigh = reweigh.Reweighter(model, LOSS)
    with pytest.warns(UserWarning, match="nothing exact can run; scores are approximate, off by"):
        scores = weigh(train, clean).scores
    assert weigh.backend == "finite_difference"
    assert relative(scores, definition.scores(model, LOSS, train, clean)) <= 1e-2
