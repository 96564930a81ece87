"""Mixing with random weights: against the definition, worked out step by step with plain autograd."""

import pytest
import torch
from torch import nn

from reweigh.errors import SettingError
from reweigh.methods import Problem, View, hedged, make, with_clean
from support.method_cases import cross_entropy, problem

CLEAN, TRAIN, FEATURES, CLASSES = 15, 12, 4, 3


def gradient(loss, net):
    flat = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in flat])


def case(steps=20):
    """A problem whose clean labels are 0 1 2 0 1 2 ..., a model, and train batches."""
    torch.manual_seed(3)
    clean = torch.randn(CLEAN, FEATURES).double(), torch.arange(CLEAN) % CLASSES
    task, _ = problem(clean=clean, clean_labels=clean[1], steps=steps)
    net = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()
    trains = [
        (torch.randn(TRAIN, FEATURES).double(), torch.randint(0, CLASSES, (TRAIN,)))
        for _ in range(steps)
    ]
    return task, net, trains


def held_rows(turn):
    """Every fifth of the rows sorted by class: with 5 a class, one of each."""
    order = [row for c in range(CLASSES) for row in range(c, CLEAN, CLASSES)]
    return [row for place, row in enumerate(order) if place % 5 == turn]


def test_steps_are_mixed_as_the_formula_says():
    task, net, trains = case()
    method = make("reweigh_hedged", task, safeguard=None)
    optimizer = torch.optim.SGD(net.parameters(), lr=2.0)
    b = c = 0.5
    past = {"weighed": 0.0, "plain": 0.0}
    shares = []
    for step, train in enumerate(trains):
        held = held_rows(step // 4)  # twenty steps, five turns
        assert sorted(task.clean[1][held].tolist()) == [0, 1, 2]
        rest = [row for row in range(CLEAN) if row not in held]
        judge = gradient(cross_entropy(net(task.clean[0][held]), task.clean[1][held]).mean(), net)
        if step:
            b = min(1.0, b * float(torch.exp(0.05 * torch.sign(judge @ past["weighed"]))))
            c = min(1.0, c * float(torch.exp(0.05 * torch.sign(judge @ past["plain"]))))
        clean = gradient(cross_entropy(net(task.clean[0][rest]), task.clean[1][rest]).mean(), net)
        losses = cross_entropy(net(train[0]), train[1])
        each = torch.stack([gradient(f, net) for f in losses])
        positive = (each @ clean).clamp(min=0)
        weights = positive / positive.sum()
        past["weighed"] = 0.9 * past["weighed"] + weights @ each
        past["plain"] = 0.9 * past["plain"] + each.mean(0)
        a = b / (b + c)
        shares.append(a)

        view = View(net, train, task.clean, torch.arange(TRAIN), step, 2.0)
        weighed = method.weigh(view, method.losses)
        assert torch.allclose(weighed.weights, weights)  # before mixing
        optimizer.zero_grad()
        weighed.loss.backward()
        found = torch.cat([p.grad.flatten() for p in net.parameters()])
        mixed = a * weights @ each + (1 - a) * by_chance(task, step) @ each
        assert torch.allclose(found, mixed, atol=1e-6)  # chance is drawn in float32
        optimizer.step()
    assert len({round(a, 6) for a in shares}) > 2  # the judges have not always agreed


def by_chance(task, step):
    """The weights of the method `random` in that step."""
    drawn = torch.randn(TRAIN, generator=task.generator("random weights", step)).clamp(min=0)
    return (drawn / drawn.sum()).double()


class ATenth:
    """A safeguard that trusts every step by a tenth."""

    def __call__(self, clean_loss, direction, slope, gradient):
        return torch.full_like(slope, 0.1)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_trust_is_the_safeguards_for_the_weights_and_the_belief_for_the_rest():
    """Two runs from the same place, one without a safeguard: the same direction, shorter by a u + (1 - a) c."""
    task, net, trains = case()
    for step, train in enumerate(trains[:3]):
        view = View(net, train, task.clean, torch.arange(TRAIN), step, 2.0)
        found = []
        for safeguard in (None, ATenth()):
            method = make("reweigh_hedged", task, safeguard=safeguard)
            believed = {"weighed": torch.tensor(0.3), "plain": torch.tensor(0.6)}
            method.state["beliefs"].load_state_dict(believed)
            weighed = method.weigh(view, method.losses)
            found.append(gradient(weighed.loss, net))
        assert torch.allclose(found[1], (0.1 / 3 + 0.6 * 2 / 3) * found[0])


def test_it_leaves_the_direction_that_hurts_rows_that_were_not_asked():
    """Most of one class is called another: plain steps hurt, weighed ones do not."""
    torch.manual_seed(0)
    truth, own = torch.arange(300) % 3, torch.arange(15) % 3
    rows = [3 * torch.eye(3)[y] + torch.randn(len(y), 3) for y in (truth, own)]
    given = torch.where((truth == 1) & (torch.arange(300) % 6 < 4), 0, truth)
    task, _ = problem(clean=(rows[1], own), clean_labels=own, train_labels=given, steps=100)
    net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    method = make("reweigh_hedged", task)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(100):
        ids = torch.randint(0, 300, (50,))
        view = View(net, (rows[0][ids], given[ids]), task.clean, ids, step, 0.1)
        optimizer.zero_grad()
        method.weigh(view, method.losses).loss.backward()
        optimizer.step()
    believed = method.state["beliefs"].state_dict()
    assert believed["weighed"] > 2 * believed["plain"]


def test_a_large_clean_set_is_drawn_from():
    """A clean batch of 5 rows: 5 of the 12 that weigh, one of the 3 that judge, by seed and step alone."""
    task, net, trains = case()
    some = (task.clean[0][:5], task.clean[1][:5])
    view = View(net, trains[0], some, torch.arange(TRAIN), 3, 0.1)
    method = make("reweigh_hedged", task)
    found = [method.weigh(view, method.losses).clean_loss for _ in range(2)]
    assert torch.equal(*found)
    rest = [row for row in range(CLEAN) if row not in held_rows(0)]
    losses = cross_entropy(net(task.clean[0]), task.clean[1])[rest]
    sums = torch.combinations(losses.detach(), 5).mean(1)
    assert (sums - found[0]).abs().min() < 1e-9


def test_a_tiny_clean_set_judges_nothing():
    task, net, trains = case()
    few = (task.clean[0][:9], task.clean[1][:9])
    small, _ = problem(clean=few, clean_labels=few[1])
    view = View(net, trains[0], few, torch.arange(TRAIN), 0, 0.1)
    made = [make(name, small, safeguard=None) for name in ("reweigh_hedged", "reweigh")]
    hedged, pure = (method.weigh(view, method.losses) for method in made)
    assert torch.equal(hedged.loss, pure.loss)
    assert torch.equal(hedged.weights, pure.weights)


def test_the_rows_that_judge_are_not_learnt():
    task, _, _ = case()
    with pytest.raises(SettingError, match="would learn the clean rows that judge it"):
        with_clean(make("reweigh_hedged", task))


@pytest.mark.parametrize(
    ("rows", "classes", "parts"),
    [(9, 2, 0), (10, 2, 5), (20, 10, 2), (19, 10, 0), (30, 10, 3), (39, 10, 3), (500, 10, 5)],
)
def test_there_are_no_more_turns_than_rows_of_a_class(rows, classes, parts):
    """A turn in which a class has no judge, or nobody who weighs, would be unfair to it."""
    assert hedged.turns(rows, classes) == parts


def test_every_class_has_a_judge_and_a_row_that_weighs_in_every_turn():
    labels = torch.arange(20) % 10
    clean = torch.randn(20, 4), labels
    task = Problem(cross_entropy, 10, labels, labels, clean, steps=10)
    hedging = hedged._Hedging({}, task, hedged.Beliefs(task))
    batch = torch.randn(5, 4), labels[:5]
    for step in range(10):
        view = View(nn.Linear(4, 10), batch, clean, torch.arange(5), step, 0.1)
        for _, targets in hedging._cut(view):
            assert sorted(targets.tolist()) == list(range(10))
