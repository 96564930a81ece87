"""The safeguard scales the gradient by a factor in [0, 1]: shorter until steps help the next clean batch."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import nn

import reweigh
from reweigh.core.clean.low_rank import Factors, PartlyFactored
from reweigh.core.model.parameters import Direction
from reweigh.core.safeguard import NextBatchJudge, safe_step
from reweigh.errors import SettingError
from support import definition
from support.problems import cross_entropy, mlp, vectors


class Definition:
    """The rule in plain numbers, written from its description."""

    def __init__(self, trust: float, loss: float) -> None:
        self.trust, self.losses, self.step = trust, [loss], 1
        self.smooth = self.best = loss
        self.square = 0.0

    def judge(self, slope_at_the_end: float, loss: float) -> float:
        share = max(1 / 10, 1 / (self.step + 1))
        self.square = (1 - share) * self.square + share * (loss - self.smooth) ** 2
        self.smooth = (1 - share) * self.smooth + share * loss
        back_up = self.smooth - self.best > math.sqrt(self.square)
        if self.step < 10:
            self.best = self.smooth
        else:
            self.best = min(self.smooth, 0.99 * self.best + 0.01 * self.smooth)
        if slope_at_the_end > 0:
            self.trust *= math.exp(-0.05)
        elif slope_at_the_end < 0 and not back_up:
            self.trust *= math.exp(0.05)
        self.trust = min(1.0, max(1e-4, self.trust))
        self.step += 1
        return self.trust


class Walk:
    """A safeguard whose judgements and clean losses are made up: one parameter, moved by hand."""

    def __init__(self, slope: float = 1.0, square: float = 100.0) -> None:
        self.guard, self.at = NextBatchJudge(), nn.Parameter(torch.zeros(1))
        self.slope, self.d = torch.tensor(slope), [torch.tensor([square**0.5])]

    def step(self, loss: float, judgement: float) -> float:
        self.at.data += judgement
        direction = Direction(("at",), (self.at,), (torch.ones(1),))
        return float(self.guard(torch.tensor(loss), direction, self.slope, lambda: self.d))


def test_trust_starts_at_the_safe_step():
    assert Walk(slope=20.0).step(2.0, 0.0) == pytest.approx(0.5 * 20 / 100)
    assert Walk(slope=1e-6).step(2.0, 0.0) == pytest.approx(0.01)
    assert Walk(slope=0.0, square=0.0).step(2.0, 0.0) == pytest.approx(0.01)  # nobody has weight


def test_it_is_what_its_description_says():
    draw = random.Random(0)
    walk = Walk()
    described = Definition(walk.step(2.0, 0.0), 2.0)
    seen = []
    for t in range(400):
        loss = 2 * math.exp(-t / 60) + 0.3 * draw.random() + (1.0 if 150 < t < 250 else 0.0)
        judgement = draw.choice([-1.0, -1.0, 1.0])
        seen.append(walk.step(loss, judgement))
        assert seen[-1] == pytest.approx(described.judge(judgement, loss), rel=1e-4)
    assert max(seen) > 10 * min(seen)
    assert len(set(seen)) > 100


def test_steps_that_help_bring_full_trust_and_steps_that_do_not_take_it():
    walk = Walk()
    up = [walk.step(2.0 / (1 + t), -1.0) for t in range(120)]
    assert up[-1] == 1
    down = [walk.step(0.01, 1.0) for _ in range(60)]
    assert down == sorted(down, reverse=True)
    assert down[-1] == pytest.approx(math.exp(-3), rel=1e-3)


def test_a_clean_loss_that_is_back_up_stops_growth_until_it_is_forgotten():
    walk = Walk()
    for t in range(50):
        before = walk.step(1.0 - 0.001 * t, -1.0)
    climbing = [walk.step(1.0 + 0.05 * t, -1.0) for t in range(40)]
    assert climbing[-1] == pytest.approx(climbing[10])
    assert climbing[-1] < 2 * before < 1
    falling = [walk.step(3.0 - 0.001 * t, -1.0) for t in range(900)]
    assert falling[20] == climbing[-1]
    assert falling[-1] == 1


def test_noise_does_not_end_trust():
    """Signs that are hardly better than even, and a clean loss of which the first was the lowest."""
    for seed in range(5):
        draw = random.Random(seed)
        walk = Walk()
        walk.step(0.0, 0.0)
        trust = [
            walk.step(2 + draw.gauss(0, 1), -1.0 if draw.random() < 0.6 else 1.0)
            for _ in range(2000)
        ]
        assert sum(trust[1000:]) / 1000 > 0.6


def test_if_nothing_has_moved_trust_stays():
    walk = Walk()
    assert len({walk.step(1.0, 0.0) for _ in range(20)}) == 1


def test_scaling_or_shifting_the_loss_changes_nothing():
    def trusts(scale: float, shift: float) -> list[float]:
        draw, walk = random.Random(3), Walk()
        return [
            walk.step(
                scale * (2 * math.exp(-t / 30) + 0.25 * draw.randrange(4)) + shift,
                scale * draw.choice([-1.0, -1.0, 1.0]),
            )
            for t in range(200)
        ]

    assert trusts(1024, 0) == trusts(1, 0)
    assert trusts(1, -8) == pytest.approx(trusts(1, 0), rel=0.2)  # up to rounding


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("rate", [1.0, 3.0, 10.0])
def test_on_a_parabola_trust_settles_where_a_step_meets_the_minimum(rate, momentum):
    """G = x^2 / 2. Momentum adds up steps, 1 / (1 - momentum) of them: trust is so much shorter."""
    guard, x, speed, trusts = NextBatchJudge(), nn.Parameter(torch.ones(1).double()), 0.0, []
    for _ in range(800):
        at = x.detach().clone()
        direction = Direction(("x",), (x,), (at,))
        loss, slope = 0.5 * at.square().sum(), at.square().sum()
        trusts.append(float(guard(loss, direction, 50 * slope, lambda at=at: [50 * at])))
        speed = momentum * speed - rate * trusts[-1] * float(at)
        x.data += speed
        if abs(speed) < 1e-12:  # it has arrived: once more
            x.data.fill_(1.0)
    settled = sum(trusts[200:]) / 600
    assert rate * settled == pytest.approx(1 - momentum, rel=0.3)


def test_the_safe_step_is_half_the_projection_and_never_more_than_one():
    d = [torch.tensor([3.0, 4.0]), None]
    assert float(safe_step(d, torch.tensor(5.0))) == pytest.approx(0.5 * 5 / 25)
    assert float(safe_step(d, torch.tensor(1e6))) == 1
    assert float(safe_step([torch.zeros(2)], torch.tensor(0.0))) == 0
    assert float(safe_step([None], torch.tensor(0.0))) == 0


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05),
}


def judged(model, loss, optimizer, *, stride: int = 1, **options):
    """The factors of thirty steps, and those of the definition, by brute force."""
    weigh, found, right = reweigh.Reweighter(model, loss, **options), [], []
    described, last = None, None
    for _ in range(30):
        train, clean = vectors(8), vectors(5)
        train, clean = (train[0].double(), train[1]), (clean[0].double(), clean[1])
        gradient = definition.clean_gradient(model, loss, clean)
        here = [p.detach().clone() for p in model.parameters()]
        mean = float(loss(model, clean).mean().detach())
        step = weigh(train, clean)
        found.append(float(step.factor))
        if described is None:
            described = Definition(found[0], mean)
        else:
            moved = zip(gradient, here, last, strict=True)
            slope = sum(float(((p - q) * g)[::stride].sum()) for g, p, q in moved)
            right.append(described.judge(slope, mean))
        last = here
        optimizer.zero_grad()
        step.loss.backward()
        optimizer.step()
    return found[1:], right


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("backend", ["auto", "forward_mode", "double_backward"])
def test_the_judgement_is_the_clean_slope_along_the_last_step(backend, optimizer):
    model = mlp().double()
    found, right = judged(
        model, cross_entropy, OPTIMIZERS[optimizer](model.parameters()), backend=backend
    )
    assert found == pytest.approx(right, rel=1e-5)
    assert len({round(factor, 6) for factor in found}) > 3


def test_in_the_geometry_of_adam_it_is_still_the_plain_slope():
    model = mlp().double()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    found, right = judged(model, cross_entropy, optimizer, geometry=optimizer)
    assert found == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("backend", ["auto", "forward_mode"])
def test_large_models_are_judged_by_a_part_of_their_rows(backend, monkeypatch):
    model = mlp().double()
    count = sum(p.numel() for p in model.parameters())
    monkeypatch.setattr("reweigh.core.safeguard.ENTRIES", count // 3 + 1)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    weigh = reweigh.Reweighter(model, cross_entropy)
    weigh((vectors(4)[0].double(), vectors(4)[1]), (vectors(4)[0].double(), vectors(4)[1]))
    assert weigh.state_dict()["place"].numel() < count / 2
    found, right = judged(model, cross_entropy, optimizer, stride=3, backend=backend)
    assert found == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("transposed", [True, False])
def test_rows_of_factors_are_rows_of_their_product(transposed):
    factors = Factors(torch.randn(4, 6), torch.randn(4, 9), transposed)
    bias = Factors(None, torch.randn(4, 9), transposed=False)
    scalar = torch.tensor(2.0)
    found = PartlyFactored([factors, bias, scalar]).rows(4)
    for rows, right in zip(
        found, (factors.product()[::4], bias.product()[::4], scalar), strict=True
    ):
        assert torch.allclose(rows, right)


@pytest.mark.parametrize("backend", ["ghost", "forward_mode", "double_backward"])
def test_it_multiplies_the_gradient_and_nothing_else(backend):
    model = mlp().double()
    (x, y), (cx, cy) = vectors(6), vectors(4)
    train, clean = (x.double(), y), (cx.double(), cy)
    guarded = reweigh.Reweighter(model, cross_entropy, backend=backend)(train, clean)
    literal = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=None)(
        train, clean
    )
    assert 0 < float(guarded.factor) < 1
    assert float(literal.factor) == 1
    for name in ("weights", "scores", "losses", "clean_loss"):
        assert torch.equal(getattr(guarded, name), getattr(literal, name)), name
    assert torch.allclose(guarded.loss.detach(), literal.loss.detach())
    (2 * guarded.loss).backward()
    expected = definition.weighted_gradient(model, cross_entropy, train, literal.weights)
    for p, g in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, 2 * guarded.factor * g, rtol=1e-6)


def test_with_full_trust_the_step_is_the_literal_one_to_the_bit():
    def run(safeguard):
        torch.manual_seed(1)
        model = mlp()
        update = torch.optim.SGD(model.parameters(), lr=0.01)
        reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=safeguard)
        if safeguard is not None:  # as after a hundred steps that helped
            one = torch.tensor(1.0)
            reweighter.load_state_dict(
                {"step": one * 100, "best": one, "smooth": one, "trust": one}
            )
        batch = vectors(8)  # the same again and again, so that small steps help
        for _ in range(20):
            update.zero_grad()
            step = reweighter(batch, batch)
            assert float(step.factor) == 1
            step.loss.backward()
            update.step()
        return [p.detach() for p in model.parameters()]

    for p, q in zip(run("auto"), run(None), strict=True):
        assert torch.equal(p, q)


def test_its_state_can_be_saved_and_resumed():
    def run(stop: int | None) -> list[float]:
        torch.manual_seed(0)
        model = mlp()
        update = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        weigh, factors = reweigh.Reweighter(model, cross_entropy), []
        for t in range(12):
            if t == stop:
                state = weigh.state_dict()
                weigh = reweigh.Reweighter(model, cross_entropy)
                weigh.load_state_dict(state)
                assert weigh.state_dict() == state
            update.zero_grad()
            step = weigh(vectors(8), vectors(4))
            step.loss.backward()
            update.step()
            factors.append(float(step.factor))
        return factors

    assert run(None) == run(5) == run(1)
    assert len(set(run(None))) > 3


def test_a_state_of_the_former_safeguard_is_taken_up_and_any_other_refused():
    number = torch.tensor(0.5)
    former = dict.fromkeys(("step", "start", "best", "smooth", "trust"), number)
    guard = NextBatchJudge()
    guard.load_state_dict(former)
    walk = Walk()
    walk.guard = guard
    assert walk.step(0.5, -1.0) == 0.5  # where the last step began is not known: no judgement
    assert walk.step(0.5, -1.0) == pytest.approx(0.5 * math.exp(0.05))
    with pytest.raises(SettingError, match=r"state with \['momentum'\]; expected step, trust"):
        guard.load_state_dict({"momentum": number})


def test_a_rate_that_destroys_the_literal_rule_does_not_destroy_the_guarded_one():
    """Digits, learning rate .3 with momentum .9: the smallest form of benchmarks/stability.py."""
    from reweigh import data

    digits = data.load("digits")
    recipe = data.Recipe("digits", "uniform_flip", rate=0.4, clean_per_class=5)
    task = data.prepare(digits, recipe, seed=0)
    options = data.BatchOptions(size=50, clean_size=50, peak=digits.peak)
    test = task.test.examples()

    def accuracy(safeguard):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
            nn.Linear(128, 10),
        )  # fmt: skip
        update = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        reweighter = reweigh.Reweighter(model, cross_entropy, safeguard=safeguard)
        pairs = data.PairedBatches(task.train, task.clean, seed=0, options=options)
        for pair in pairs.until(300):
            update.zero_grad()
            reweighter(pair.train, pair.clean).loss.backward()
            update.step()
        guess = model(test.inputs.float() / digits.peak).argmax(1)
        return float((guess == test.targets).float().mean())

    assert accuracy(None) < 0.5
    assert accuracy("auto") > 0.85
