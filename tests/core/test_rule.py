"""Another rule than the paper's: what it is given, what becomes of its weights, what is refused."""

from __future__ import annotations

import pytest
import torch

import reweigh
from reweigh.errors import SettingError
from support import definition
from support.problems import PROBLEMS
from support.shared_batches import softened

MLP = next(p for p in PROBLEMS if p.name == "mlp")


def weigher(**options):
    model, loss, train, clean = MLP.make(torch.float64)
    return reweigh.Reweighter(model, loss, **options), loss, train, clean


@pytest.mark.parametrize("backend", ["auto", *reweigh.core.BACKENDS])
def test_its_weights_train_the_model(backend):
    weigh, loss, train, clean = weigher(rule=softened, safeguard=None, backend=backend)
    step = weigh(train, clean)
    assert torch.equal(step.weights, softened(step.scores))
    right = definition.weighted_gradient(weigh.model, loss, train, step.weights)
    step.loss.backward()
    for p, gradient in zip(weigh.model.parameters(), right, strict=True):
        assert torch.allclose(p.grad, gradient, rtol=1e-7, atol=1e-10)


def test_the_papers_rule_by_name_is_the_default():
    steps = []
    for options in ({}, {"rule": None}, {"rule": reweigh.weights_from_scores}):
        torch.manual_seed(0)
        weigh, _, train, clean = weigher(**options)
        steps.append(weigh(train, clean))
    assert all(torch.equal(steps[0].weights, other.weights) for other in steps[1:])


def test_the_safeguard_sees_its_slope():
    seen = []

    class Watching:
        def __call__(self, clean_loss, direction, slope, gradient):
            squared = sum((g * v).sum() for g, v in zip(gradient(), direction.values, strict=True))
            seen.append((float(slope), float(squared)))
            return torch.ones((), dtype=torch.float64)

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    weigh, _, train, clean = weigher(rule=softened, safeguard=Watching())
    weigh(train, clean)
    ((slope, product),) = seen
    assert slope == pytest.approx(product, rel=1e-9)  # sum_i w_i score_i = <grad G, d>


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda scores: scores[:-1] * 0, r"rule returned \(\d+,\) for scores of shape"),
        (lambda scores: [0.5] * len(scores), "rule returned list for scores of shape"),
        (lambda scores: scores, "rule returned a weight of -"),
        (lambda scores: scores * torch.nan, "expected none below zero or NaN"),
    ],
    ids=["length", "type", "negative", "nan"],
)
def test_what_is_no_weight_is_refused(rule, message):
    weigh, _, train, clean = weigher(rule=rule)
    with pytest.raises(SettingError, match=message):
        weigh(train, clean)


def test_what_is_no_rule_is_refused_at_once():
    with pytest.raises(SettingError, match=r"rule='softmax'; expected a function from scores"):
        weigher(rule="softmax")
