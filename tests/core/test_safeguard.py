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
from support.trust import Trust, weights_first


class Walk:
    """A safeguard whose judgements are made up: one parameter, moved by hand, clean slope 1.

    A second one stays where it is, so far from zero that no move makes the parameters shrink.
    """

    def __init__(self, slope: float = 1.0, square: float = 100.0) -> None:
        self.guard, self.at = NextBatchJudge(), nn.Parameter(torch.tensor([0.0, 1e6]))
        self.slope, self.d = torch.tensor(slope), [torch.tensor([square**0.5, 0.0])]

    def step(self, move: float, gradient: float = 1.0) -> float:
        self.at.data[0] += move
        direction = Direction(("at",), (self.at,), (torch.tensor([gradient, 0.0]),))
        return float(self.guard(torch.tensor(1.0), direction, self.slope, lambda: self.d))


def test_trust_starts_at_the_safe_step():
    assert Walk(slope=20.0).step(0.0) == pytest.approx(0.5 * 20 / 100)
    assert Walk(slope=1e-6).step(0.0) == pytest.approx(0.01)
    assert Walk(slope=0.0, square=0.0).step(0.0) == pytest.approx(0.01)  # nobody has weight


def test_it_is_what_its_description_says():
    draw = random.Random(0)
    walk = Walk()
    described = Trust(walk.step(0.0), walk.at.data.clone())
    seen = []
    for t in range(400):
        move = draw.gauss(-0.3 if t < 150 or t > 250 else 0.3, 1)
        gradient = draw.choice([1.0, 1.0, 1.0, -1.0])
        seen.append(walk.step(move, gradient))
        right = described.judge(torch.tensor([gradient, 0.0]), walk.at.data.clone())
        assert seen[-1] == pytest.approx(right, rel=1e-4)
    assert max(seen) > 10 * min(seen)
    assert len(set(seen)) > 100


def test_a_way_down_brings_full_trust_and_a_way_up_takes_it():
    walk = Walk()
    up = [walk.step(-1.0) for _ in range(120)]
    assert up[-1] == 1
    down = [walk.step(1.0) for _ in range(200)]
    assert down[10] == 1  # it is still lower than it was on average
    assert down[-1] < 0.01


def test_a_step_too_far_on_a_way_down_only_ends_growth():
    walk = Walk()
    for _ in range(40):
        before = walk.step(-1.0)
    assert 0 < before < 1
    assert walk.step(0.5) == before
    assert before * math.exp(0.04) < walk.step(-1.0) < before * math.exp(0.05)


def test_trust_grows_slowly_where_few_steps_are_good_and_fast_again_where_all_are():
    """The way leads down all the time; of the steps, first every fourth does, then each one."""

    def growth(walk: Walk, moves: list[float]) -> float:
        before = walk.step(moves[0])
        return math.log([walk.step(move) for move in moves[1:]][-1] / before)

    walk = Walk()
    for _ in range(20):
        walk.step(-1.0)
    few = growth(walk, [-1.0, 0.2, 0.2, 0.2] * 30)
    assert 0.02 < few / (0.05 * 30) < 0.5  # of what thirty good steps could bring
    all_good = growth(walk, [-1.0] * 60)
    assert all_good > 0.05 * 35


def test_being_thrown_from_side_to_side_takes_trust():
    """The clean loss |x|: every step helps or harms by chance, and the mean place is the best."""
    walk, trust = Walk(), []
    for t in range(400):
        side = 1.0 if t % 2 else -1.0
        trust.append(walk.step(side, gradient=side))
    assert trust[-1] < 0.001


def test_noise_in_single_steps_does_not_end_trust():
    """Steps of which hardly more than half help, on a way that leads down."""
    for seed in range(5):
        draw, walk = random.Random(seed), Walk()
        trust = [walk.step(draw.gauss(-0.2, 1)) for _ in range(2000)]
        assert sum(trust[1000:]) / 1000 > 0.9


def test_if_nothing_has_moved_trust_stays():
    walk = Walk()
    assert len({walk.step(0.0) for _ in range(20)}) == 1
    for _ in range(30):
        walk.step(-1.0)
    high = walk.step(40.0)  # a way up now
    assert {walk.step(0.0) for _ in range(20)} == {high}


def test_scaling_the_loss_changes_nothing():
    def trusts(scale: float) -> list[float]:
        draw, walk = random.Random(3), Walk()
        return [walk.step(draw.gauss(-0.2, 1), scale * draw.random()) for _ in range(200)]

    assert trusts(1024) == trusts(1)


def valley(rate: float, momentum: float, noise: float, *, guarded: bool) -> tuple[float, float]:
    """G at the end of 800 steps down a valley, and the mean trust: curvatures 1 and 1/100.

    The third parameter does not count; it is large, as that of a model whose size hardly changes.
    """
    guard, x = NextBatchJudge(), nn.Parameter(torch.tensor([1.0, 1.0, 1e4]).double())
    curvature, speed, trusts = torch.tensor([1.0, 0.01, 0]).double(), torch.zeros(3).double(), []
    random_state = torch.Generator().manual_seed(0)
    for _ in range(800):
        at = x.detach().clone()
        gradient = curvature * at
        d = gradient + noise * torch.randn(3, generator=random_state).double()
        loss, direction = 0.5 * (gradient * at).sum(), Direction(("x",), (x,), (gradient,))
        slope = gradient.square().sum()
        trusts.append(float(guard(loss, direction, slope, lambda d=d: [d])) if guarded else 1.0)
        speed = momentum * speed - rate * trusts[-1] * d
        x.data += speed
    return float(0.5 * (curvature * x.data.square()).sum()), sum(trusts) / 800


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0, 1.9])
def test_where_literal_steps_go_down_a_valley_they_are_trusted(rate):
    found, trust = valley(rate, 0.0, 0.0, guarded=True)
    literal, _ = valley(rate, 0.0, 0.0, guarded=False)
    assert trust > 0.97
    assert found == pytest.approx(literal, rel=0.3)


@pytest.mark.parametrize(("rate", "momentum"), [(3.0, 0.0), (10.0, 0.9)])
def test_where_literal_steps_fly_out_of_the_valley_it_finds_the_bottom(rate, momentum):
    literal, _ = valley(rate, momentum, 0.0, guarded=False)
    assert not literal < 1e100
    assert valley(rate, momentum, 0.0, guarded=True)[0] < 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("rate", [0.5, 1.0, 1.9])
def test_where_noise_throws_literal_steps_about_it_ends_much_lower(rate, momentum):
    literal, _ = valley(rate, momentum, 0.3, guarded=False)
    assert valley(rate, momentum, 0.3, guarded=True)[0] < literal / 5


@pytest.mark.parametrize("biases_decay", [True, False])
def test_weight_decay_takes_no_trust(biases_decay):
    """Steps are short at first, so that decay is most of what moves: up the clean loss, not by the rule."""
    weights = nn.Parameter(torch.tensor([[5.0, -1.0]]))  # G falls with 5; is least if -1 were 1
    scales = nn.Parameter(torch.ones(4))
    guard, trusts = NextBatchJudge(), []
    for _ in range(400):
        slopes = torch.tensor([[-1.0, float(weights.data[0, 1]) - 1]]), torch.full((4,), -0.1)
        direction = Direction(("weights", "scales"), (weights, scales), slopes)
        trusts.append(float(guard(torch.tensor(1.0), direction, torch.tensor(0.0), list)))
        weights.data -= 0.01 * (trusts[-1] * slopes[0] + 0.1 * weights.data)
        scales.data -= 0.01 * (trusts[-1] * slopes[1] + 0.1 * biases_decay * scales.data)
    assert trusts[0] == pytest.approx(0.01)
    assert trusts[-1] > 0.5
    assert float(weights.data[0, 1]) > 0.5


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
    """The factors of sixty steps, and those of the definition, by brute force."""
    weigh, found, right = reweigh.Reweighter(model, loss, **options), [], []
    described = None
    for _ in range(60):
        train, clean = vectors(8), vectors(5)
        train, clean = (train[0].double(), train[1]), (clean[0].double(), clean[1])
        gradient = definition.clean_gradient(model, loss, clean)
        slopes, here = (
            torch.cat([x.detach()[::stride].reshape(-1) for x in weights_first(parts)])
            for parts in (gradient, model.parameters())
        )
        step = weigh(train, clean)
        found.append(float(step.factor))
        if described is None:
            weights = sum(p[::stride].numel() for p in model.parameters() if p.ndim > 1)
            described = Trust(found[0], here, weights)
        else:
            right.append(described.judge(slopes, here))
        optimizer.zero_grad()
        step.loss.backward()
        optimizer.step()
    return found[1:], right


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("backend", ["auto", "forward_mode", "double_backward"])
def test_the_judgements_are_the_clean_slopes_along_the_last_step_and_the_way(backend, optimizer):
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
    monkeypatch.setattr("reweigh.core.safeguard.ROWS", 1)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    weigh = reweigh.Reweighter(model, cross_entropy)
    weigh((vectors(4)[0].double(), vectors(4)[1]), (vectors(4)[0].double(), vectors(4)[1]))
    assert weigh.state_dict()["place"].numel() < count / 2
    found, right = judged(model, cross_entropy, optimizer, stride=3, backend=backend)
    assert found == pytest.approx(right, rel=1e-5)


def test_of_a_large_model_all_classes_judge():
    model = nn.Sequential(nn.Linear(100, 4000), nn.ReLU(), nn.Linear(4000, 10))
    weigh = reweigh.Reweighter(model, cross_entropy)
    weigh(*((torch.randn(3, 100), torch.arange(3)) for _ in "ab"))
    place = weigh.state_dict()["place"]
    assert place.numel() < 2 * 2**16
    assert torch.equal(place[-10:], model[2].bias.detach())
    weights = model[2].weight.detach().reshape(-1)
    assert any(torch.equal(place[i : i + len(weights)], weights) for i in range(len(place)))


@pytest.mark.parametrize("transposed", [True, False])
def test_rows_of_factors_are_rows_of_their_product(transposed):
    factors = Factors(torch.randn(4, 6), torch.randn(4, 9), transposed)
    bias = Factors(None, torch.randn(4, 9), transposed=False)
    scalar = torch.tensor(2.0)
    found = PartlyFactored([factors, bias, scalar]).rows([4, 2, 1])
    for rows, right in zip(
        found, (factors.product()[::4], bias.product()[::2], scalar), strict=True
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
            reweighter.load_state_dict({"step": one * 100, "trust": one})
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
    assert walk.step(-1.0) == 0.5  # where the last step began is not known: no judgement
    assert walk.step(-1.0) == pytest.approx(0.5 * math.exp(0.05))
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
