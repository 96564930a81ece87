"""Bad input gets a typed error that names what came and the fix."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh.errors import (
    BatchError,
    LossShapeError,
    NoGradientError,
    NonFiniteError,
    ReweighError,
    SettingError,
    UnknownNameError,
    UnsupportedModelError,
)
from support.problems import cross_entropy, mlp, vectors


def call(model=None, loss=cross_entropy, train=None, clean=None, **options):
    model = mlp() if model is None else model
    return reweigh.Reweighter(model, loss, **options)(train or vectors(6), clean or vectors(4))


def raises(kind, *words):
    return pytest.raises(kind, match="(?s)" + ".*".join(words))


def test_every_error_is_one_that_the_command_line_can_print():
    for kind in (BatchError, LossShapeError, NoGradientError, NonFiniteError, SettingError):
        assert issubclass(kind, ReweighError)


def test_a_reduced_loss():
    def reduced(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    with raises(LossShapeError, r"shape \(\)", "clean batch of 4", "reduction='none'"):
        call(loss=reduced)


def test_a_reduced_criterion():
    with raises(LossShapeError, "CrossEntropyLoss", "reduction='mean'", "reduction='none'"):
        reweigh.per_example(nn.CrossEntropyLoss())


def test_a_loss_of_the_wrong_length():
    def per_token(model, batch):
        return model(batch[0]).flatten()

    with raises(LossShapeError, r"shape \(16,\)", r"expected \(4,\)"):
        call(loss=per_token)


def test_a_loss_that_is_no_tensor():
    with raises(LossShapeError, "returned float"):
        call(loss=lambda model, batch: 0.5)


def test_a_loss_of_integers():
    with raises(LossShapeError, "torch.int64"):
        call(loss=lambda model, batch: batch[1])


@pytest.mark.parametrize(("which", "value"), [("train", float("nan")), ("clean", float("inf"))])
def test_nan_names_the_batch_and_the_rows(which, value):
    batches = {"train": vectors(6), "clean": vectors(4)}
    batches[which][0][2] = value
    with raises(NonFiniteError, f"the {which} batch", "rows 2 ", "check those inputs"):
        call(nn.Linear(8, 4), **batches)
    with raises(NonFiniteError, f"the {which} batch", "rows 2 "):
        reweigh.example_scores(nn.Linear(8, 4), cross_entropy, *batches.values())


def test_infinite_gradients_of_finite_losses():
    def root(model, batch):
        return model(batch[0]).abs().sum(1).sqrt()

    model = nn.Linear(8, 4, bias=False)
    train = (torch.zeros(6, 8), torch.zeros(6))
    with raises(NonFiniteError, "losses are finite but the gradients"):
        call(model, root, train, (torch.ones(4, 8), torch.zeros(4)))


@pytest.mark.parametrize("which", ["train", "clean"])
def test_an_empty_batch(which):
    with raises(BatchError, f"the {which} batch is empty"):
        reweigh.Reweighter(mlp(), cross_entropy)(
            vectors(0 if which == "train" else 6), vectors(0 if which == "clean" else 4)
        )


def test_a_loss_that_ignores_the_parameters():
    def detached(model, batch):
        return cross_entropy(model, batch).detach()

    with raises(NoGradientError, "do not depend", "detach"):
        call(loss=detached)


def test_no_trainable_parameter():
    model = mlp().requires_grad_(False)
    with raises(NoGradientError, "Sequential has no trainable parameter", "4 in all", "unfreeze"):
        call(model)


def test_batches_on_different_devices():
    train = (torch.zeros(6, 8, device="meta"), torch.zeros(6, device="meta"))
    with raises(BatchError, "train batch is on meta", "clean batch on cpu", "move both"):
        call(train=train)


def test_an_unknown_back_end_with_a_suggestion():
    with raises(
        UnknownNameError, "unknown back-end 'gost'", "did you mean 'ghost'", "forward_mode"
    ):
        call(backend="gost")
    with raises(UnknownNameError, "ghost"):
        reweigh.example_scores(mlp(), cross_entropy, vectors(6), vectors(4), backend="gosht")


def test_an_unknown_safeguard_with_a_suggestion():
    with raises(UnknownNameError, "unknown safeguard 'atuo'", "did you mean 'auto'"):
        call(safeguard="atuo")


def test_parameters_that_are_not_there():
    with raises(UnknownNameError, "unknown parameter '2.wieght'", "did you mean '2.weight'"):
        call(params="2.wieght")
    with raises(SettingError, "picked none of 4"):
        call(params=lambda name, p: False)
    with raises(SettingError, "empty"):
        call(params=[])


def test_frozen_and_integer_parameters_asked_for():
    model = mlp()
    model[0].weight.requires_grad_(False)
    model.table = nn.Parameter(torch.arange(3), requires_grad=False)
    with raises(SettingError, "'0.weight'", "frozen"):
        call(model, params="0.weight")
    with raises(SettingError, "'table'", r"integers \(torch.int64\)"):
        call(model, params="table")
    call(model)  # integers that no one asks to train are none of our business


def test_lazy_and_complex_parameters():
    with raises(UnsupportedModelError, "not initialised", "run one forward"):
        call(nn.LazyLinear(4))
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with raises(UnsupportedModelError, "'w' is complex"):
        call(model)


@pytest.mark.parametrize("chunk", [0, -1, 2.5])
def test_a_bad_chunk(chunk):
    with raises(SettingError, f"chunk={chunk}", "positive"):
        call(chunk=chunk)


@pytest.mark.parametrize("epsilon", [-0.01, 0.0, float("nan")])
def test_a_bad_epsilon_of_the_scores(epsilon):
    with raises(SettingError, "epsilon=", "positive"):
        reweigh.example_scores(
            nn.Linear(4, 3), cross_entropy, vectors(4), vectors(3), epsilon=epsilon,
            backend="finite_difference",
        )  # fmt: skip


def test_a_bad_epsilon():
    with raises(SettingError, "epsilon=-1", "positive"):
        call(epsilon=-1)


def test_a_ragged_batch_cannot_be_cut():
    with raises(BatchError, r"\[4, 6\]", "chunks"):
        call(train=(torch.zeros(6, 8), torch.zeros(6, dtype=torch.long), torch.zeros(4)), chunk=2,
             loss=lambda model, batch: cross_entropy(model, batch[:2]))  # fmt: skip
