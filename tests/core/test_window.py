"""The micro-batches of a window are weighed as the joined batch: held to a loop over all its examples."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.errors import BatchError, SettingError, UnsupportedModelError
from support import definition

LOSS = reweigh.per_example(F.cross_entropy)
EXACT = ("auto", "ghost", "forward_mode", "double_backward")
N = 32


class Attention(nn.Module):
    """A layer of a transformer, and a head."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(self.table(x)).mean(1))


def mlp(*extra: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), *extra, nn.Tanh(), nn.Linear(8, 3))


def vectors(n: int):
    return torch.randn(n, 5, dtype=torch.float64), torch.randint(3, (n,))


def texts(n: int):
    return torch.randint(7, (n, 4)), torch.randint(3, (n,))


PROBLEMS = {"mlp": (mlp, vectors), "attention": (Attention, texts)}


def cut(batch, size: int):
    return list(zip(*(part.split(size) for part in batch), strict=True))


def weights_of(scores):
    positive = scores.clamp(min=0)
    return positive / positive.sum()


def assert_gradient(model, expected, error):
    for p, g in zip(model.parameters(), expected, strict=True):
        if g is None:
            assert p.grad is None
        else:
            torch.testing.assert_close(p.grad, g, rtol=error, atol=error)


@pytest.mark.parametrize("size", [1, 4, 32])
@pytest.mark.parametrize(
    ("problem", "backend"), [*(("mlp", backend) for backend in EXACT), ("attention", "auto")]
)
def test_the_gradient_is_that_of_the_joined_batch(problem, backend, size):
    make, draw = PROBLEMS[problem]
    torch.manual_seed(0)
    model, train, clean = make().double(), draw(N), draw(8)
    scores = definition.scores(model, LOSS, train, clean)
    weights = weights_of(scores)
    expected = definition.weighted_gradient(model, LOSS, train, weights)
    weigh = reweigh.Reweighter(model, LOSS, backend=backend, safeguard=None)
    for _ in range(2):  # proven, then warm
        window = weigh.window(cut(train, size), clean)
        assert [len(w) for w in window.weights] == [size] * (N // size)
        torch.testing.assert_close(torch.cat(window.scores), scores, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(torch.cat(window.weights), weights, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(torch.cat(window.losses), LOSS(model, train).detach())
        model.zero_grad()
        window.backward()
        assert_gradient(model, expected, 1e-9)


@pytest.mark.parametrize("size", [1, 4, 32])
def test_in_float32(size):
    torch.manual_seed(0)
    model, (x, y), (cx, cy) = mlp(), vectors(N), vectors(8)
    train, clean = (x.float(), y), (cx.float(), cy)
    weights = weights_of(definition.scores(model, LOSS, train, clean)).float()
    expected = definition.weighted_gradient(model, LOSS, train, weights)
    reweigh.Reweighter(model, LOSS, safeguard=None).window(cut(train, size), clean).backward()
    assert_gradient(model, expected, 1e-6)


@pytest.mark.parametrize("rule", [None, lambda scores: scores.softmax(0)])
def test_dropout_draws_what_plain_accumulation_draws(rule):
    """The scores are those of the masks that the update trains with."""
    torch.manual_seed(0)
    model, parts, clean = Attention(dropout=0.5).double(), cut(texts(9), 4), texts(4)
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None, rule=rule)
    for _ in range(2):
        state = torch.get_rng_state()
        direction = definition.clean_gradient(model, LOSS, clean)
        losses = torch.cat([LOSS(model, part) for part in parts])
        after, theta = torch.get_rng_state(), list(model.parameters())
        rows = [
            torch.autograd.grad(f, theta, retain_graph=True, materialize_grads=True) for f in losses
        ]
        scores = torch.stack(
            [sum((a * v).sum() for a, v in zip(row, direction, strict=True)) for row in rows]
        )
        weights = weights_of(scores) if rule is None else rule(scores)
        expected = torch.autograd.grad((weights * losses).sum(), theta)
        torch.set_rng_state(state)
        window = weigh.window(parts, clean)
        torch.testing.assert_close(torch.cat(window.scores), scores, rtol=1e-8, atol=1e-11)
        model.zero_grad()
        window.backward()
        assert_gradient(model, expected, 1e-9)
        assert torch.equal(torch.get_rng_state(), after)


def test_a_rule_of_ones_own_sees_the_whole_window():
    torch.manual_seed(0)
    model, train, clean = mlp().double(), vectors(10), vectors(4)
    seen = []

    def rule(scores):
        seen.append(scores)
        return scores.softmax(0)

    weights = definition.scores(model, LOSS, train, clean).softmax(0)
    expected = definition.weighted_gradient(model, LOSS, train, weights)
    reweigh.Reweighter(model, LOSS, rule=rule, safeguard=None).window(
        cut(train, 3), clean
    ).backward()
    assert [len(scores) for scores in seen] == [10]
    assert_gradient(model, expected, 1e-9)


def test_every_micro_batch_runs_forward_once():
    """By the paper's rule nothing is computed again: gradients are summed as they come."""
    model, parts, clean = Attention(), cut(texts(12), 2), texts(4)
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    for _ in range(2):
        weigh.window(parts, clean).backward()
    calls = []
    handle = model.head.register_forward_hook(lambda *_: calls.append(1))
    weigh.window(parts, clean)  # proven anew: the hook is new
    calls.clear()
    weigh.window(parts, clean).backward()
    handle.remove()
    assert len(calls) == len(parts) + 1


def test_clean_micro_batches_are_the_joined_clean_batch():
    torch.manual_seed(0)
    model, train, clean = mlp().double(), vectors(6), vectors(7)
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    whole = weigh.window(cut(train, 2), clean)
    apart = weigh.window(cut(train, 2), cut(clean, 3))
    torch.testing.assert_close(torch.cat(apart.scores), torch.cat(whole.scores))
    torch.testing.assert_close(apart.clean_loss, LOSS(model, clean).mean().detach())


def test_parts_of_micro_batches_of_other_lengths():
    """Tokens: each micro-batch is padded to its own longest text."""

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)

        def forward(self, x):
            return self.head(self.table(x).cumsum(1))

    def loss(model, batch):
        (x,) = batch
        return F.cross_entropy(model(x[:, :-1]).mT, x[:, 1:], reduction="none")

    torch.manual_seed(0)
    model = Tokens().double()
    parts = [(torch.randint(7, (2, length)),) for length in (5, 8, 3)]
    clean = (torch.randint(7, (3, 6)),)
    direction = definition.clean_gradient(model, loss, clean)
    theta = list(model.parameters())
    losses = torch.cat([loss(model, part).flatten() for part in parts])
    rows = [torch.autograd.grad(f, theta, retain_graph=True) for f in losses]
    scores = torch.stack(
        [sum((a * v).sum() for a, v in zip(row, direction, strict=True)) for row in rows]
    )
    expected = torch.autograd.grad((weights_of(scores) * losses).sum(), theta)
    for rule in (None, lambda s: s.clamp(min=0) / s.clamp(min=0).sum()):  # summed, and run again
        window = reweigh.Reweighter(model, loss, safeguard=None, rule=rule).window(parts, clean)
        assert [tuple(w.shape) for w in window.weights] == [(2, 4), (2, 7), (2, 2)]
        found = torch.cat([s.flatten() for s in window.scores])
        torch.testing.assert_close(found, scores, rtol=1e-9, atol=1e-12)
        model.zero_grad()
        window.backward()
        assert_gradient(model, expected, 1e-9)


@pytest.mark.parametrize("scale", [1e-14, 1.0, 1e14])
def test_scores_of_any_size(scale):
    """Products of gradients reach the limits of float32 long before the gradients do."""

    def scaled(model, batch):
        return LOSS(model, batch) * scale * batch[0][:, 0].exp()

    torch.manual_seed(0)
    model, (x, y), (cx, cy) = mlp(), vectors(12), vectors(4)
    train, clean = (3 * x.float(), y), (cx.float(), cy)
    exact = mlp().double()
    exact.load_state_dict(model.state_dict())
    wide = [(batch[0].double(), batch[1]) for batch in (train, clean)]
    weights = weights_of(definition.scores(exact, scaled, *wide))
    expected = definition.weighted_gradient(exact, scaled, wide[0], weights)
    reweigh.Reweighter(model, scaled, safeguard=None).window(cut(train, 1), clean).backward()
    for p, g in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad.double() / scale, g / scale, rtol=1e-3, atol=1e-3)


def test_no_positive_score_leaves_a_gradient_of_zero():
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(5, 2).double(), vectors(4)
    y = y % 2
    window = reweigh.Reweighter(model, LOSS).window(cut((x, 1 - y), 2), (x, y))
    window.backward()
    if float(torch.cat(window.weights).sum()) == 0:
        assert not model.weight.grad.any()
    assert window.step.shared_by == 4


def test_the_safeguard_acts_on_the_window_as_on_the_joined_batch():
    torch.manual_seed(0)
    one, other = mlp().double(), mlp().double()
    other.load_state_dict(one.state_dict())
    ways = []
    for model, size in ((one, None), (other, 3)):
        torch.manual_seed(1)
        weigh = reweigh.Reweighter(model, LOSS)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        factors = []
        for _ in range(5):
            train, clean = vectors(9), vectors(4)
            step = weigh(train, clean) if size is None else weigh.window(cut(train, size), clean)
            optimizer.zero_grad()
            step.loss.backward()
            optimizer.step()
            factors.append(step.factor)
        ways.append(torch.stack(factors))
    torch.testing.assert_close(*ways)
    torch.testing.assert_close(one.state_dict(), other.state_dict())


def test_backward_hooks_of_modules_are_called():
    model, train, clean = mlp().double(), vectors(6), vectors(4)
    calls = []
    model[2].register_full_backward_hook(lambda *_: calls.append(1))
    weigh = reweigh.Reweighter(model, LOSS, rule=None, safeguard=None)
    weigh.window(cut(train, 6), clean).backward()
    assert len(calls) == 1


def test_memory_is_bounded_by_the_micro_batch():
    def peak(n: int) -> int:
        alive = high = 0

        class Held:
            def __init__(self, tensor):
                nonlocal alive, high
                self.tensor, self.size = tensor.detach(), tensor.numel()
                alive += self.size
                high = max(high, alive)

            def __del__(self):
                nonlocal alive
                alive -= self.size

        gc.collect()
        model = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(64, 64), nn.Tanh())])
        batch = (torch.randn(n, 64), torch.randn(n, 64))
        weigh = reweigh.Reweighter(
            model, reweigh.per_example(F.mse_loss), backend="forward_mode"
        )  # whose graph is all it holds
        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            weigh.window(cut(batch, 16), cut(tuple(t[:32] for t in batch), 16)).backward()
        return high

    assert peak(256) < 1.2 * peak(32)


def test_bad_windows():
    model = mlp().double()
    x, y = vectors(4)

    def loss(model, batch):
        return LOSS(model, (batch["x"], batch["y"]))

    weigh, good = reweigh.Reweighter(model, loss), {"x": x, "y": y}
    with pytest.raises(BatchError, match="the window is empty; expected at least one"):
        weigh.window([], good)
    with pytest.raises(BatchError, match=r"micro-batch 1 of the window has the columns \['x'\]"):
        weigh.window([good, {"x": x}], good)
    with pytest.raises(
        BatchError, match=r"micro-batch 1 .* a tuple of 3, the first one a tuple of 2"
    ):
        reweigh.Reweighter(model, LOSS).window([(x, y), (x, y, y)], (x, y))
    with pytest.raises(BatchError, match=r"window\(dict, ...\); expected the micro-batches"):
        weigh.window(good, good)
    with pytest.raises(BatchError, match="the train batch is empty"):
        weigh.window([good, {"x": x[:0], "y": y[:0]}], good)
    with pytest.raises(SettingError, match=r"chunk=2 with a window"):
        reweigh.Reweighter(model, loss, chunk=2).window([good], good)


def test_writing_to_the_input_is_refused():
    class Normalising(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(x.sub_(x.mean(1, keepdim=True)))

    weigh = reweigh.Reweighter(Normalising().double(), LOSS)
    with pytest.raises(
        UnsupportedModelError, match="a window with a model that writes to its input"
    ):
        weigh.window([vectors(4)], vectors(3))


def test_under_accelerate():
    """`accelerator.backward(window.loss)` leaves the gradient of the joined batch."""
    accelerate = pytest.importorskip(
        "accelerate", reason="needs accelerate: pip install 'reweigh[app]'"
    )
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    model, train, clean = accelerator.prepare(mlp().double()), vectors(8), vectors(4)
    weights = weights_of(definition.scores(model, LOSS, train, clean))
    expected = definition.weighted_gradient(model, LOSS, train, weights)
    window = reweigh.Reweighter(model, LOSS, safeguard=None).window(cut(train, 1), clean)
    accelerator.backward(window.loss)
    assert_gradient(model, expected, 1e-9)


class ByRow:
    """Several examples in one row: the loss alone knows how many."""

    counts_examples = True

    def __call__(self, model, batch):
        x, y = batch
        return LOSS(model, (x[0], y[0]))


def test_a_row_may_hold_several_examples_or_one():
    """One that holds several is found out by a forward that leaves no trace."""
    torch.manual_seed(0)
    model, loss = mlp(nn.Dropout(0.5)).double(), ByRow()
    sizes, clean = (1, 3, 1, 2), tuple(part[None] for part in vectors(4))
    parts = [tuple(part[None] for part in vectors(n)) for n in sizes]
    weigh = reweigh.Reweighter(model, loss, safeguard=None)
    theta = list(model.parameters())
    for _ in range(2):
        state = torch.get_rng_state()
        direction = definition.clean_gradient(model, loss, clean)
        losses = torch.cat([loss(model, part) for part in parts])
        rows = [torch.autograd.grad(f, theta, retain_graph=True) for f in losses]
        scores = torch.stack(
            [sum((a * v).sum() for a, v in zip(row, direction, strict=True)) for row in rows]
        )
        after = torch.get_rng_state()
        expected = torch.autograd.grad((weights_of(scores) * losses).sum(), theta)
        torch.set_rng_state(state)
        window = weigh.window(parts, clean)
        assert [len(w) for w in window.weights] == list(sizes)
        torch.testing.assert_close(torch.cat(window.scores), scores, rtol=1e-9, atol=1e-12)
        model.zero_grad()
        window.backward()
        assert_gradient(model, expected, 1e-9)
        assert torch.equal(torch.get_rng_state(), after)


def test_a_micro_batch_of_one_costs_a_plain_step():
    """Whatever the model: its score is the product of its own gradient with the clean one."""

    class Odd(torch.autograd.Function):  # of which only a plain backward is known
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            assert not torch.is_grad_enabled()
            calls.append(1)
            return g * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(Odd.apply(self.a(x)))

    calls = []
    model, train, clean = Net().double(), vectors(6), vectors(4)
    weights = weights_of(definition.scores(model, LOSS, train, clean))
    expected = definition.weighted_gradient(model, LOSS, train, weights)
    calls.clear()
    reweigh.Reweighter(model, LOSS, safeguard=None).window(cut(train, 1), clean).backward()
    assert len(calls) == 6 + 1
    assert_gradient(model, expected, 1e-9)
