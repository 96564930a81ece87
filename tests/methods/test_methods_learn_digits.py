"""Every method, on real digits with wrong labels: the loss falls, and nothing is NaN."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from reweigh.methods import METHODS, Problem
from support.method_cases import Run, cross_entropy
from support.noisy_digits import load_digits

STEPS, SIZE, CLASSES = 120, 50, 10


def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))


@pytest.fixture(scope="module")
def digits():
    return load_digits(noise="uniform", rate=0.3, clean_per_class=5, seed=0)


@pytest.fixture(scope="module")
def task(digits):
    """The problem, with a plain model trained beforehand for those that ask."""
    given = digits.train_labels
    kept = digits.true_labels == given
    made = Problem(
        cross_entropy,
        CLASSES,
        given,
        digits.clean_labels,
        (digits.clean_images, digits.clean_labels),
        STEPS,
        right_share=torch.stack([kept[given == c].float().mean() for c in range(CLASSES)]),
    )
    plain = Run("uniform", made, digits.train_images, net=net(), size=SIZE, learning_rate=0.05)
    plain.advance(STEPS)
    with torch.no_grad():
        predicted = plain.model(digits.train_images).argmax(1)
    pairs = (predicted * CLASSES + given).bincount(minlength=CLASSES**2)
    return replace(made, pretrained=plain.model, confusion=pairs.view(CLASSES, CLASSES))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns(name, task, digits):
    run = Run(name, task, digits.train_images, net=net(), size=SIZE, learning_rate=0.05)
    base = getattr(run.model, "base", run.model)

    def test_loss():
        with torch.no_grad():
            return float(cross_entropy(base(digits.test_images), digits.test_labels).mean())

    before = test_loss()
    outcomes = run.advance(STEPS)
    for weighed in outcomes:
        for value in (weighed.loss, weighed.weights, weighed.losses):
            assert torch.isfinite(value).all()
        assert (weighed.weights >= 0).all()
        assert float(weighed.weights.sum()) <= 1 + 1e-5
        assert len(weighed.weights) == len(weighed.losses) == SIZE
        assert not weighed.weights.requires_grad
        assert not weighed.losses.requires_grad
    assert all(torch.isfinite(p).all() for p in run.model.parameters())
    assert test_loss() < 0.7 * before
