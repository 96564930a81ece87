"""Micro-batches that go through the model together are weighed as they are one by one: no number changes."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from support import definition

ROWS: list[int] = []  # not the model's: it would be state of its own


def noted(rows: int) -> None:
    ROWS.append(rows)


LOSS = reweigh.per_example(F.cross_entropy)


class Words(nn.Module):
    """Attention over the words before, by hand: PyTorch does not know that rows stay apart."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table, self.qkv, self.head = nn.Embedding(7, 8), nn.Linear(8, 24), nn.Linear(8, 7)
        self.dropout = dropout

    def forward(self, x):
        noted(len(x))
        q, k, v = self.qkv(self.table(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)
        return self.head(F.dropout(y[:, 0], self.dropout))


def by_token(model, batch):
    (x,) = batch
    return F.cross_entropy(model(x[:, :-1]).mT, x[:, 1:], reduction="none")


def by_sequence(model, batch):
    return by_token(model, batch).mean(1)


def texts(n: int, length: int = 6):
    return (torch.randint(7, (n, length)),)


def rows_of(step) -> list[int]:
    """How many rows each call of the model had."""
    ROWS.clear()
    step()
    return list(ROWS)


def brute(model, loss, parts, clean):
    """Scores of every loss by itself, and the gradient for the paper's weights."""
    direction, theta = definition.clean_gradient(model, loss, clean), list(model.parameters())
    losses = torch.cat([loss(model, part).flatten() for part in parts])
    rows = [torch.autograd.grad(f, theta, retain_graph=True) for f in losses]
    scores = torch.stack(
        [sum((a * v).sum() for a, v in zip(row, direction, strict=True)) for row in rows]
    )
    weights = scores.clamp(min=0) / scores.clamp(min=0).sum()
    return scores, torch.autograd.grad((weights * losses).sum(), theta)


def assert_exact(model, weigh, loss, parts, clean) -> None:
    scores, gradient = brute(model, loss, parts, clean)
    window = weigh.window(parts, clean)
    expected = [loss(model, part).shape for part in parts]
    assert [w.shape for w in window.weights] == expected
    found = torch.cat([s.flatten() for s in window.scores])
    torch.testing.assert_close(found, scores, rtol=1e-9, atol=1e-12)
    model.zero_grad()
    window.backward()
    for p, g in zip(model.parameters(), gradient, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", [None, lambda s: s.clamp(min=0) / s.clamp(min=0).sum()])
@pytest.mark.parametrize("loss", [by_token, by_sequence])
def test_groups_give_what_the_definition_gives(loss, rule):
    torch.manual_seed(0)
    model = Words().double()
    weigh = reweigh.Reweighter(model, loss, safeguard=None, one_pass=True, rule=rule)
    for _ in range(3):  # proven, and warm
        assert_exact(model, weigh, loss, [texts(1) for _ in range(7)], texts(3))
    parts, again = [texts(1) for _ in range(7)], [] if rule is None else [3, 3, 1]
    weigh.window(parts, texts(3))
    assert rows_of(lambda: weigh.window(parts, texts(3)).backward()) == [3, 3, 3, 1, *again]


def test_a_group_holds_no_more_than_the_clean_batch():
    model = Words().double()
    weigh = reweigh.Reweighter(model, by_token, safeguard=None, one_pass=True)
    parts = [*(texts(1) for _ in range(4)), texts(2), texts(1), texts(1, 10), texts(1, 10)]
    for _ in range(2):  # looked at: other passes run, too
        weigh.window(parts, texts(3))
    assert rows_of(lambda: weigh.window(parts, texts(3))) == [3, 3, 3, 1, 1, 1]
    in_parts = [texts(1), texts(2)]
    weigh.window(parts, in_parts)
    assert rows_of(lambda: weigh.window(parts, in_parts)) == [1, 2, 2, 2, 2, 1, 1, 1]


def test_nobody_vouches_and_nothing_is_joined():
    model = Words().double()
    weigh = reweigh.Reweighter(model, by_token, safeguard=None)
    parts = [texts(1) for _ in range(4)]
    for _ in range(2):
        weigh.window(parts, texts(4))
    assert rows_of(lambda: weigh.window(parts, texts(4))) == [4, 1, 1, 1, 1]


def test_modules_of_pytorch_need_no_vouching():
    torch.manual_seed(0)

    class Tanh(nn.Tanh):
        row_wise = True

        def forward(self, x):
            noted(len(x))
            return super().forward(x)

    model = nn.Sequential(nn.Linear(5, 8), Tanh(), nn.Linear(8, 3)).double()

    def vectors(n: int):
        return torch.randn(n, 5, dtype=torch.float64), torch.randint(3, (n,))

    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    for _ in range(2):
        assert_exact(model, weigh, LOSS, [vectors(2) for _ in range(4)], vectors(6))
    parts = [vectors(2) for _ in range(4)]
    assert rows_of(lambda: weigh.window(parts, vectors(6))) == [6, 6, 2]


def test_dropout_is_drawn_one_micro_batch_at_a_time():
    """Groups would draw other masks than plain accumulation draws."""
    torch.manual_seed(0)
    model, parts, clean = Words(dropout=0.5).double(), [texts(1) for _ in range(4)], texts(4)
    weigh = reweigh.Reweighter(model, by_token, safeguard=None, one_pass=True)
    for _ in range(2):
        state = torch.get_rng_state()
        losses = [by_token(model, part).detach() for part in parts]
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        window = weigh.window(parts, clean)
        assert torch.equal(torch.get_rng_state(), after)
        for mine, theirs in zip(window.losses, losses, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_model_that_looks_at_the_batch_as_a_whole_is_found_out():
    """The user vouched and was wrong: the losses tell."""

    class Centred(Words):
        def forward(self, x):
            logits = super().forward(x)
            return logits - logits.mean((0, 1), keepdim=True).detach() * torch.arange(7)

    torch.manual_seed(0)
    model = Centred().double()
    weigh = reweigh.Reweighter(model, by_token, safeguard=None, one_pass=True)
    for _ in range(2):
        assert_exact(model, weigh, by_token, [texts(1) for _ in range(4)], texts(4))


def test_rows_that_hold_several_examples_are_not_joined():
    class ByWord:
        counts_examples = True

        def __call__(self, model, batch):
            return by_token(model, batch).flatten()

    torch.manual_seed(0)
    model, loss = Words().double(), ByWord()
    weigh = reweigh.Reweighter(model, loss, safeguard=None, one_pass=True)
    for _ in range(2):
        assert_exact(model, weigh, loss, [texts(1) for _ in range(4)], texts(4))


def test_memory_is_that_of_the_clean_batch_whatever_the_window():
    """What autograd keeps at once, in numbers: it grows with neither the window nor its groups."""

    def peak(train: int, clean: int) -> int:
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
        loss = reweigh.per_example(F.mse_loss)
        weigh = reweigh.Reweighter(model, loss, backend="forward_mode")
        parts = [(torch.randn(2, 64), torch.randn(2, 64)) for _ in range(train)]
        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            weigh.window(parts, (torch.randn(clean, 64), torch.randn(clean, 64))).backward()
        return high

    assert peak(64, 16) < 1.2 * peak(1, 16)
    assert peak(64, 2) < peak(64, 16)
