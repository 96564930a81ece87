"""How well a cell finds its wrong labels: against counting pairs, and against the ranking."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("accelerate")

from reweigh.audit import Ledger, rank_classes
from reweigh.data import BatchOptions, Recipe, load, prepare
from reweigh.experiments import cell_training
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.experiment import cells
from reweigh.experiments.label_audit import audit_labels
from reweigh.models import MLP, MLPOptions


def pairs_in_order(wrong, suspicion):
    """The share of pairs (wrong, right) with the wrong one higher; equal ones count half."""
    above = suspicion[wrong][:, None] - suspicion[~wrong][None, :]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


@pytest.fixture
def task():
    recipe = Recipe("digits", "pair_flip", rate=0.4, clean_per_class=3, size=200)
    return prepare(load("digits"), recipe, seed=1)


def test_the_numbers_are_those_of_all_pairs(task):
    torch.manual_seed(0)
    model = MLP(MLPOptions(hidden=(8,)))
    train, n = task.train, len(task.train)
    options = BatchOptions(peak=task.peak)
    ledger = Ledger(n)
    losses = torch.rand(n) + train.changed  # wrong labels tend to have the larger losses
    weights = torch.rand(n) * (torch.rand(n) > 0.3)
    ledger.record(torch.arange(n), weights / weights.sum(), losses=losses)
    found, matrix = audit_labels(model, ledger, train, 10, options)

    wrong = train.changed.numpy()
    assert found["loss_auroc"] == pytest.approx(pairs_in_order(wrong, losses.double().numpy()))
    with torch.no_grad():
        p = model(train.inputs[train.ids].float() / task.peak).double().softmax(1).numpy()
    given = train.targets.numpy()
    others = p.copy()
    others[np.arange(n), given] = -1
    table = ledger.table()
    ranking = rank_classes(
        given,
        mean_loss=table["mean_loss"],
        zero_share=table["zero_share"],
        p_given=p[np.arange(n), given],
        rival=others.argmax(1),
        p_rival=others.max(1),
    )
    suspicion = dict(zip(ranking.order.tolist(), ranking.suspicion.tolist(), strict=True))
    in_place = np.array([suspicion[k] for k in range(n)])
    assert found["audit_auroc"] == pytest.approx(pairs_in_order(wrong, in_place))
    counted = np.zeros((10, 10), dtype=int)
    for true, label in zip(train.truth.tolist(), given.tolist(), strict=True):
        counted[true, label] += 1
    assert matrix["given"] == counted.tolist()


def test_labels_never_trained_on_are_ranked_by_the_model_alone(task):
    torch.manual_seed(0)
    model = MLP(MLPOptions(hidden=(8,)))
    train, n = task.train, len(task.train)
    found, _ = audit_labels(model, Ledger(n), train, 10, BatchOptions(peak=task.peak))
    assert "loss_auroc" not in found
    with torch.no_grad():
        p = model(train.inputs[train.ids].float() / task.peak).double().softmax(1).numpy()
    given = train.targets.numpy()
    of_given = p[np.arange(n), given]
    p[np.arange(n), given] = -1
    margin = of_given - p.max(1)
    assert found["audit_auroc"] == pytest.approx(pairs_in_order(train.changed.numpy(), -margin))


@pytest.mark.parametrize("method", ["uniform", "uniform+ft", "clean_only", "reweigh_literal"])
def test_a_cell_of_human_noise_is_audited(tmp_path, method):
    (cell,) = cells(EXPERIMENTS["human-noise"], "smoke", methods=[method])
    record = cell_training.run_cell(cell, work=tmp_path, threads=1, tick=lambda _: None)
    metrics, details = record["metrics"], record["details"]
    assert 0 <= metrics["audit_auroc"] <= 1
    assert ("loss_auroc" in metrics) == (method != "clean_only")
    assert np.array(details["given"]).sum() == details["sizes"]["train"]
    off = np.array(details["given"]).sum() - np.trace(details["given"])
    assert off == details["sizes"]["wrong"]
    if method == "uniform+ft":  # the loss is that of training on the doubtful labels
        first = replace(cell, method="uniform")
        plain = cell_training.run_cell(first, work=tmp_path, threads=1, tick=lambda _: None)
        assert metrics["loss_auroc"] == plain["metrics"]["loss_auroc"]
