"""A proof holds for what was run: models that change under way are looked at again."""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from support import definition
from support.problems import CLASSES, Centred, cross_entropy, labelled, mlp, tokens


def double(n):
    x, y = labelled(n, 8)
    return x.double(), y


def agrees(reweighter, train, clean, loss=cross_entropy):
    expected = definition.scores(reweighter.model, loss, train, clean)
    return torch.allclose(reweighter(train, clean).scores, expected, rtol=1e-8, atol=1e-12)


def test_a_head_that_starts_at_zero_hides_no_coupling():
    head = nn.Linear(6, CLASSES)
    nn.init.zeros_(head.weight)
    model = nn.Sequential(nn.Linear(8, 6), Centred(), nn.Tanh(), head).double()
    reweighter = reweigh.Reweighter(model, cross_entropy)
    update = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(4):
        train, clean = double(6), double(4)
        assert agrees(reweighter, train, clean)
        update.zero_grad()
        reweighter(train, clean).loss.backward()
        update.step()


def test_a_coupling_that_is_ramped_up_is_found_when_it_is_looked_at_again():
    model = mlp().double()
    ramp = 0.0

    def loss(model, batch):
        z = model(batch[0])
        mixed = F.cross_entropy(z @ z.t(), torch.arange(len(z)), reduction="none")
        return F.cross_entropy(z, batch[1], reduction="none") + ramp * mixed

    reweighter = reweigh.Reweighter(model, loss)
    assert agrees(reweighter, double(6), double(4), loss)
    ramp = 0.5
    assert agrees(reweighter, double(6), double(4), loss)  # the second use is one of those
    assert reweighter.backend == "forward_mode"


def test_sequences_first_of_length_one_then_of_six():
    class SequenceFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 6), nn.Linear(6, CLASSES)

        def forward(self, x):
            return self.head(self.table(x.t()).tanh()).mean(0)

    reweighter = reweigh.Reweighter(SequenceFirst().double(), cross_entropy)
    for length in (1, 1, 1, 6, 6, 1):
        assert agrees(reweighter, tokens(5, length), tokens(3, length))


def test_a_straight_through_step_switched_on_later_is_not_followed_blindly():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 4).round() / 4

        @staticmethod
        def backward(ctx, g):
            return g

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.norm, self.head = nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)
            self.on = False

        def forward(self, x):
            h = self.norm(self.body(x))
            return self.head(Round.apply(h) if self.on else h)

    model = Quantised().double()
    reweighter = reweigh.Reweighter(model, cross_entropy)
    for on in (False, False, False, True, True):
        model.on = on
        assert agrees(reweighter, double(6), double(4))


def test_parameters_of_a_criterion_unfrozen_later_are_trained():
    scale = nn.Parameter(torch.tensor(1.0, dtype=torch.float64), requires_grad=False)

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]) * scale, batch[1], reduction="none")

    reweighter = reweigh.Reweighter(mlp().double(), loss)
    reweighter(double(6), double(4)).loss.backward()
    assert scale.grad is None
    scale.requires_grad_()
    reweighter(double(6), double(4)).loss.backward()
    assert scale.grad is not None


@pytest.mark.parametrize("backend", ["ghost", "forward_mode", "double_backward"])
@pytest.mark.parametrize("safeguard", [None, "auto"])
def test_hooks_on_parameters_act_once_on_the_update_and_not_on_the_scores(backend, safeguard):
    model = mlp().double()
    train, clean = double(6), double(4)
    expected = definition.scores(model, cross_entropy, train, clean)
    calls = []

    def tenth(g):
        calls.append(1)
        return g * 0.1

    model[0].weight.register_hook(tenth)
    step = reweigh.Reweighter(model, cross_entropy, backend=backend, safeguard=safeguard)(
        train, clean
    )
    assert torch.allclose(step.scores, expected)
    assert not calls
    step.loss.backward()
    assert len(calls) == 1
    model[0].weight._backward_hooks.clear()
    bare = definition.weighted_gradient(model, cross_entropy, train, step.weights)
    assert torch.allclose(model[0].weight.grad, 0.1 * step.factor * bare[0], rtol=1e-6)


def test_a_loss_may_take_its_batch_apart():
    def loss(model, batch):
        labels = batch.pop("labels")
        return F.cross_entropy(model(batch.pop("inputs")), labels, reduction="none")

    def batch(n):
        x, y = labelled(n, 8)
        return {"inputs": x, "labels": y}

    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    train, clean = batch(6), batch(4)
    reweigh.Reweighter(model, loss)(train, clean).loss.backward()
    assert set(train) == set(clean) == {"inputs", "labels"}
    assert [f.level for f in reweigh.validate(model, loss, train, clean)] == ["info"]


def test_works_where_gradients_are_off():
    model = mlp()
    reweighter = reweigh.Reweighter(model, cross_entropy)
    with torch.no_grad():
        step = reweighter(labelled(6, 8), labelled(4, 8))
    step.loss.backward()
    assert model[0].weight.grad is not None


def test_can_be_copied_and_pickled():
    reweighter = reweigh.Reweighter(mlp(), cross_entropy)
    reweighter(labelled(6, 8), labelled(4, 8))
    twin = copy.deepcopy(reweighter)
    assert twin.backend == "ghost"
    assert twin.backend.reason == reweighter.backend.reason
    assert pickle.loads(pickle.dumps(reweighter.backend)).exact


def test_a_buffer_filled_on_first_use_is_not_filled_by_the_clean_batch():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 4)
            self.register_buffer("centre", None)

        def forward(self, x):
            if self.centre is None:
                self.centre = x.mean(0)
            return self.body(x - self.centre)

    model = Lazy()
    train, clean = labelled(6, 8), labelled(4, 8)
    reweigh.Reweighter(model, cross_entropy)(train, clean)
    assert torch.equal(model.centre, train[0].mean(0))


def test_chunks_fall_through_when_a_later_one_takes_another_path():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            h = self.body(x)
            return h - h.mean(0) if x[0, 0] > 0 else h

    train, clean = double(6), double(4)
    train[0][:3, 0], train[0][3:, 0] = -1.0, 1.0
    reweighter = reweigh.Reweighter(Sometimes().double(), cross_entropy, chunk=3)
    step = reweighter(train, clean)
    assert reweighter.backend == "forward_mode"
    parts = [
        definition.scores(reweighter.model, cross_entropy, (train[0][i], train[1][i]), clean)
        for i in (slice(0, 3), slice(3, 6))
    ]
    assert torch.allclose(step.scores, torch.cat(parts))


def test_batches_that_are_objects_are_followed_by_ghost_too():
    class Encoding(collections.UserDict):
        pass

    @dataclasses.dataclass
    class Rows:
        inputs: torch.Tensor
        labels: torch.Tensor

    def loss(model, batch):
        parts = (batch["inputs"], batch["labels"]) if isinstance(batch, Encoding) else (
            batch.inputs, batch.labels)  # fmt: skip
        return cross_entropy(model, parts)

    for kind in (lambda x, y: Encoding(inputs=x, labels=y), Rows):
        train, clean = kind(*double(6)), kind(*double(4))
        reweighter = reweigh.Reweighter(mlp().double(), loss)
        assert agrees(reweighter, train, clean, loss)
        assert reweighter.backend == "ghost"
