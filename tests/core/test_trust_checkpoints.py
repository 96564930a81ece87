"""Checkpoints compute anew in every backward: with the same kernels, and without a further trace."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint

import reweigh
from reweigh.core import BACKENDS
from reweigh.errors import UnsupportedModelError
from support import definition

LOSS = reweigh.per_example(F.cross_entropy)


def labelled(n: int, *shape: int):
    return torch.randn(n, *(shape or (5, 8))).double(), torch.randint(3, (n,))


class Recurrent(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.layer = kind(8, 8, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.queries(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Counting(nn.Module):
    """Counts its calls in an attribute; draws numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(8, 8), 0

    def forward(self, x):
        self.calls += 1
        return F.dropout(self.layer(x), 0.2).tanh()


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(self.layer(x)).tanh()


class Checkpointed(nn.Module):
    def __init__(self, body) -> None:
        super().__init__()
        self.first, self.body, self.head = nn.Linear(8, 8), body, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(checkpoint(self.body, self.first(x), use_reentrant=False).mean(1))


BODIES = {
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "attention": Attention,
    "multihead": lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True),
    "counting": Counting,
    "batchnorm": Normalised,
}


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("body", BODIES)
def test_exact_under_a_checkpoint(body, backend, chunk):
    torch.manual_seed(0)
    model = Checkpointed(BODIES[body]()).double()
    weigh = reweigh.Reweighter(model, LOSS, backend=backend, chunk=chunk, safeguard=None)
    draws = body in ("multihead", "counting")
    for _ in range(3):
        train, clean = labelled(4), labelled(4)
        if backend == "ghost" and body == "batchnorm":
            with pytest.raises(UnsupportedModelError, match="BatchNorm"):
                weigh(train, clean)
            return
        before = torch.get_rng_state()
        twin = copy.deepcopy(model)
        expected = definition.scores(twin, LOSS, train, clean)
        torch.set_rng_state(before)
        step = weigh(train, clean)
        after = torch.get_rng_state()
        if backend == "finite_difference":
            assert torch.allclose(step.scores, expected, rtol=1e-2, atol=1e-2)
        else:
            assert torch.allclose(step.scores, expected, rtol=1e-7, atol=1e-9)
        model.zero_grad()
        step.loss.backward()
        torch.set_rng_state(before)
        gradient = definition.weighted_gradient(twin, LOSS, train, step.weights)
        assert torch.equal(after, torch.get_rng_state()) or not draws
        for p, g in zip(model.parameters(), gradient, strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-7, atol=1e-9)
    if body in ("lstm", "gru", "attention") and backend == "auto":
        assert weigh.backend == "ghost"


@pytest.mark.parametrize("hooked", [False, True], ids=["", "hooked"])
@pytest.mark.parametrize("safeguard", [None, "auto"])
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("body", ["counting", "batchnorm"])
def test_counts_as_a_plain_step_does(body, backend, safeguard, hooked):
    """Plain PyTorch runs a checkpointed block twice a step, forward and anew; so does a weighed step."""
    torch.manual_seed(0)
    model = Checkpointed(BODIES[body]()).double()
    if hooked:  # no update is assembled: the backward goes through the graph
        model.head.register_full_backward_hook(lambda *_: None)
    twin = copy.deepcopy(model)
    weigh = reweigh.Reweighter(model, LOSS, backend=backend, safeguard=safeguard)
    if backend == "ghost" and body == "batchnorm":
        with pytest.raises(UnsupportedModelError):
            weigh(labelled(6), labelled(4))
        return
    for _ in range(5):
        train, clean = labelled(6), labelled(4)
        weigh(train, clean).loss.backward()
        LOSS(twin, train).mean().backward()
        if body == "counting":
            assert model.body.calls == twin.body.calls
        else:
            for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
                assert torch.allclose(mine, theirs)


class Failing(nn.Module):
    """Takes up to `most` rows."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.layer, self.most = nn.Linear(8, 8), most

    def forward(self, x):
        x = self.layer(x).tanh()
        if len(x) > self.most:
            raise ValueError(f"{len(x)} rows")
        return x


def held(weigh) -> Exception:
    """The error of a step, with its whole traceback."""
    with pytest.raises((UnsupportedModelError, ValueError)) as info:
        weigh(labelled(4), labelled(4))
    return info.value


@pytest.mark.parametrize("case", ["refused", "user's error", "one pass fails"])
def test_an_error_inside_a_checkpoint_does_not_leave_it_open(case):
    """It would take what unrelated operations save for its own, and fail in their backward."""
    torch.manual_seed(0)
    body = Normalised() if case == "refused" else Failing(4 if case == "one pass fails" else 3)
    model = Checkpointed(body).double()
    weigh = reweigh.Reweighter(
        model, LOSS, backend="ghost", one_pass=case == "one pass fails" or None
    )
    if case == "one pass fails":
        weigh(labelled(4), labelled(4)).loss.backward()
        assert "one forward" not in weigh.backend.reason
    else:
        error = held(weigh)
        assert error.__traceback__ is not None
    x = torch.randn(3, requires_grad=True)
    x.exp().sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


def test_nothing_of_a_checkpoint_stays():
    model, frame = Checkpointed(Recurrent(nn.LSTM)).double(), checkpointing._CheckpointFrame
    weigh = reweigh.Reweighter(model, LOSS, backend="forward_mode", safeguard=None)
    step = weigh(labelled(6), labelled(4))
    assert checkpointing._CheckpointFrame is frame
    alive = weakref.ref(step.losses)
    step.loss.backward()
    del step
    gc.collect()
    assert alive() is None
    assert torch.backends.mkldnn.enabled
