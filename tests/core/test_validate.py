"""validate() tells everything at once, and leaves nothing behind."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from support.problems import Residual, cross_entropy, images, mlp, vectors


def findings(*arguments, **options):
    return reweigh.validate(*arguments, **options)


def about(found, level):
    return [f.about for f in found if f.level == level]


def test_a_healthy_set_up_gets_only_the_choice_of_back_end():
    (only,) = findings(mlp(), cross_entropy, vectors(6), vectors(4))
    assert only.level == "info"
    assert "ghost will run" in only.message


def test_says_why_a_back_end_was_passed_over():
    (only,) = findings(Residual(), cross_entropy, images(6, 3), images(4, 3))
    assert "forward_mode will run" in only.message
    assert "'norm1' (BatchNorm2d)" in only.message


def test_collects_every_problem_with_its_fix():
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout()).requires_grad_(False).eval()

    def reduced(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    train = vectors(6)
    found = findings(model, reduced, train, (train[0][:4], train[1][:4]))
    assert about(found, "error") == ["parameters", "train loss", "clean loss"]
    assert about(found, "warning") == ["mode", "overlap"]
    assert all(f.fix for f in found)
    assert "4 of 6" in next(f.message for f in found if f.about == "overlap")


def test_reports_nan_and_lost_gradients_by_batch():
    train, clean = vectors(6), vectors(4)
    train[0][3] = float("nan")
    (error,) = findings(nn.Linear(8, 4), cross_entropy, train, clean)
    assert error.about == "train loss"
    assert "rows 3" in error.message
    found = findings(mlp(), lambda m, b: cross_entropy(m, b).detach(), vectors(6), clean)
    assert about(found, "error") == ["train loss", "clean loss"]


def test_reports_a_loss_that_raises():
    found = findings(mlp(), lambda m, b: 1 / 0, vectors(6), vectors(4))
    assert "ZeroDivisionError" in found[0].message


def test_reports_a_back_end_that_refuses():
    (error,) = findings(Residual(), cross_entropy, images(6, 3), images(4, 3), backend="ghost")
    assert error.level == "error"
    assert "BatchNorm2d" in error.message


def test_warns_when_nothing_helps():
    x, y = vectors(6)
    found = findings(
        mlp(),
        lambda m, b: cross_entropy(m, b[:2]) * (-1.0 if len(b) == 3 else 1.0),
        (x[:1].repeat(6, 1), y[:1].repeat(6), y),
        (x[:1].repeat(4, 1), y[:1].repeat(4)),
    )
    assert "scores" in about(found, "warning")


def test_warns_about_a_clean_batch_without_gradient():
    found = findings(
        mlp(), lambda m, b: cross_entropy(m, b[:2]) * b[2],
        (*vectors(6), torch.ones(6)), (*vectors(4), torch.zeros(4)),
    )  # fmt: skip
    assert "clean gradient" in about(found, "warning")


def test_leaves_nothing_behind():
    model = Residual()
    before, random_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    batches = images(6, 3), images(4, 3)
    torch.set_rng_state(random_state)
    findings(model, cross_entropy, *batches)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
