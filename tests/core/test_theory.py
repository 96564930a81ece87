"""What the paper proves, checked numerically where the constants are known."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from support.problems import cross_entropy, vectors


def test_the_layer_wise_formula_equals_the_gradient_dot_product():
    """Section 3.2: score_i = mean_j sum_l (a_il . a_jl) (g_il . g_jl), for an MLP without biases."""
    model = nn.Sequential(
        nn.Linear(8, 6, bias=False), nn.Tanh(), nn.Linear(6, 5, bias=False), nn.Tanh(),
        nn.Linear(5, 4, bias=False),
    ).double()  # fmt: skip
    (x, y), (cx, cy) = vectors(7), vectors(5)

    def inputs_and_output_gradients(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        pairs, h = [], x
        for layer in model:
            if isinstance(layer, nn.Linear):
                z = layer(h)
                pairs.append((h, z))
                h = z
            else:
                h = layer(h)
        total = F.cross_entropy(h, y, reduction="sum")
        gradients = torch.autograd.grad(total, [z for _, z in pairs])
        return [(a, g) for (a, _), g in zip(pairs, gradients, strict=True)]

    train = inputs_and_output_gradients(x.double(), y)
    clean = inputs_and_output_gradients(cx.double(), cy)
    similarity = sum(
        (a @ ca.t()) * (g @ cg.t()) for (a, g), (ca, cg) in zip(train, clean, strict=True)
    )
    expected = similarity.mean(1)
    for backend in ("ghost", "forward_mode", "double_backward"):
        found = reweigh.example_scores(
            model, cross_entropy, (x.double(), y), (cx.double(), cy), backend=backend
        )
        assert torch.allclose(found, expected, rtol=1e-10)


class Logistic(nn.Module):
    """A linear classifier: losses with bounded gradients and known smoothness."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.theta


def logistic_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return F.softplus(-y * model(x))


def noisy_problem(n: int = 400, m: int = 40, size: int = 5, flipped: float = 0.4):
    truth = torch.randn(size, dtype=torch.float64)
    x = torch.randn(n + m, size, dtype=torch.float64)
    y = torch.sign(x @ truth + 0.5 * torch.randn(n + m, dtype=torch.float64))
    clean = (x[:m], y[:m].clone())
    wrong = torch.rand(n + m) < flipped
    y[wrong] = -y[wrong]
    # the lemma assumes that the train set contains the clean set
    train = (torch.cat([x[m:], clean[0]]), torch.cat([y[m:], clean[1]]))
    # f_i'' <= |x_i|^2 / 4 and |f_i'| <= |x_i|
    smoothness = float(torch.linalg.eigvalsh(clean[0].t() @ clean[0] / m)[-1]) / 4
    sigma = float(train[0].norm(dim=1).max())
    return train, clean, smoothness, sigma


def unnormalised_step(reweighter: reweigh.Reweighter, train, clean, alpha: float) -> Tensor:
    """theta -= alpha/n * sum_i max(<gG, gf_i>, 0) gf_i; returns grad G before the step."""
    model, loss = reweighter.model, reweighter.loss
    scores = reweighter(train, clean).scores
    weights = scores.clamp(min=0) / len(scores)
    (d,) = torch.autograd.grad((weights * loss(model, train)).sum(), model.theta)
    (g,) = torch.autograd.grad(loss(model, clean).mean(), model.theta)
    with torch.no_grad():
        model.theta -= alpha * d
    return g


def never_rises(values: list[float]) -> bool:
    return all(later <= earlier + 1e-12 for earlier, later in pairwise(values))


def test_lemma_1_the_clean_loss_never_rises():
    """For alpha up to 2 / (L sigma^2), any sequence of batches, labels as wrong as they like."""
    for seed in range(3):
        torch.manual_seed(seed)
        (x, y), clean, smoothness, sigma = noisy_problem()
        reweighter = reweigh.Reweighter(Logistic(5), logistic_loss, safeguard=None)
        values = []
        for _ in range(200):
            rows = torch.randint(len(x), (20,))
            unnormalised_step(reweighter, (x[rows], y[rows]), clean, 2 / (smoothness * sigma**2))
            values.append(float(logistic_loss(reweighter.model, clean).mean().detach()))
        assert never_rises(values)
        assert values[-1] < values[0]


def test_lemma_1_as_printed_holds_where_the_examples_gradients_are_orthogonal():
    """alpha = 2n / (L sigma^2): the printed bound takes |sum v_i|^2 <= sum |v_i|^2, true here."""
    torch.manual_seed(0)
    n = 6
    x = torch.diag(torch.rand(n, dtype=torch.float64) + 0.5)
    y = torch.tensor([1, 1, 1, 1, -1, -1], dtype=torch.float64)
    clean = (x, torch.ones(n, dtype=torch.float64))  # two of the six train labels are wrong
    smoothness = float((x.square().max() / n) / 4)
    sigma = float(x.max())
    reweighter = reweigh.Reweighter(Logistic(n), logistic_loss, safeguard=None)
    reweighter.model.theta.data *= 5
    values = []
    for _ in range(200):
        unnormalised_step(reweighter, (x, y), clean, 2 * n / (smoothness * sigma**2))
        values.append(float(logistic_loss(reweighter.model, clean).mean().detach()))
    assert never_rises(values)
    assert values[-1] < values[0]


def test_lemma_1_as_printed_fails_where_the_examples_agree():
    """n copies of one example, f = sqrt(1 + theta^2), L = sigma = 1: the printed rate overshoots by n,
    and 2 / (L sigma^2) is the bound that Cauchy-Schwarz gives."""

    def hyperbola(model: nn.Module, batch: Tensor) -> Tensor:
        return (1 + model(batch).square()).sqrt()

    n = 100
    batch = torch.ones(n, 1, dtype=torch.float64)
    for rate, falls in ((2.0 * n, False), (2.0, True)):
        reweighter = reweigh.Reweighter(Logistic(1), hyperbola, safeguard=None)
        reweighter.model.theta.data.fill_(1.0)
        before = float(hyperbola(reweighter.model, batch).mean().detach())
        unnormalised_step(reweighter, batch, batch, rate)
        after = float(hyperbola(reweighter.model, batch).mean().detach())
        assert (after < before) == falls


def test_theorem_2_the_smallest_clean_gradient_falls_like_one_over_root_t():
    """min_t E |grad G|^2 <= C / sqrt(T): a log-log slope of -1/2 or steeper."""
    histories = []
    for seed in range(5):
        torch.manual_seed(seed)
        (x, y), clean, smoothness, sigma = noisy_problem()
        n = 20
        reweighter = reweigh.Reweighter(Logistic(5), logistic_loss, safeguard=None)
        history = []
        for _ in range(1000):
            rows = torch.randint(len(x), (n,))
            g = unnormalised_step(
                reweighter, (x[rows], y[rows]), clean, n / (smoothness * sigma**2)
            )
            history.append(g.square().sum())
        histories.append(torch.stack(history))
    smallest = torch.stack(histories).mean(0).cummin(0).values
    times = torch.tensor([30, 100, 300, 1000])
    t, v = times.double().log(), smallest[times - 1].log()
    slope = ((t - t.mean()) * (v - v.mean())).sum() / (t - t.mean()).square().sum()
    assert slope <= -0.5


def test_the_look_ahead_rate_cancels():
    """Algorithm 1 with a real look-ahead step of any size gives the same weights."""
    model = nn.Linear(8, 4).double()
    (x, y), (cx, cy) = vectors(7), vectors(5)
    x, cx = x.double(), cx.double()
    expected = reweigh.weights_from_scores(
        reweigh.example_scores(model, cross_entropy, (x, y), (cx, cy))
    )
    for alpha in (1e-3, 0.1, 10.0):
        eps = torch.zeros(7, dtype=torch.float64, requires_grad=True)
        total = (eps * F.cross_entropy(model(x), y, reduction="none")).sum()
        gw, gb = torch.autograd.grad(total, [model.weight, model.bias], create_graph=True)
        ahead = F.linear(cx, model.weight - alpha * gw, model.bias - alpha * gb)
        (d_eps,) = torch.autograd.grad(F.cross_entropy(ahead, cy), eps)
        assert torch.allclose(reweigh.weights_from_scores(-d_eps), expected, rtol=1e-9)
