"""What `fit` trains is what its parts say, and what it reports is what the model does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from reweigh import data
from reweigh.data import BatchOptions, PairedBatches, Part, Task
from reweigh.errors import SettingError, UnknownNameError
from reweigh.training import Config, FineTune, Optimizer, fit
from support.runs import assert_same, digits_task, tiny, tiny_config

OPTIONS = BatchOptions(size=50, clean_size=20, peak=16)


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def table_task(targets, *, classes=("no", "yes"), clean=20):
    """A table of five columns; the targets are a function of its rows."""
    rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    truth = targets(rows)

    def part(start, stop):
        ids = torch.arange(start, stop)
        return Part(rows, ids, truth[ids].clone(), truth[ids])

    return Task(
        train=part(0, 100),
        hyper_validation=part(0, 0),
        clean=part(100, 100 + clean),
        test=part(120, 200),
        classes=classes,
        peak=255,
    )


def inputs(part, peak=16):
    return part.inputs[part.ids].float() / peak


def test_uniform_is_a_plain_loop_to_the_bit():
    task = digits_task()
    optimizer = Optimizer(learning_rate=0.1, momentum=0.8, weight_decay=0.01)
    config = Config(
        "uniform", steps=9, batch=OPTIONS, optimizer=optimizer, drops=((3, 0.5), (6, 0.1))
    )
    torch.manual_seed(config.seed)
    model = linear()
    bias, weight = model[1].bias, model[1].weight
    sgd = torch.optim.SGD(
        [{"params": [weight], "weight_decay": 0.01}, {"params": [bias]}], lr=0.1, momentum=0.8
    )
    pairs = PairedBatches(task.train, task.clean, seed=0, options=OPTIONS)
    for pair in pairs.until(9):
        for group in sgd.param_groups:
            group["lr"] = 0.1 * (0.5 if pairs.step > 3 else 1) * (0.1 if pairs.step > 6 else 1)
        losses = functional.cross_entropy(
            model(pair.train.inputs), pair.train.targets, reduction="none"
        )
        (losses * torch.full_like(losses, 1 / 50)).sum().backward()
        sgd.step()
        sgd.zero_grad()
    trained = fit(linear, task, config).model
    for name, value in trained.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_metrics_are_what_the_model_does():
    task = digits_task()
    outcome = fit(tiny, task, tiny_config("uniform", steps=30))
    model, metrics = outcome.model, outcome.metrics
    with torch.no_grad():
        logits = {n: model(inputs(getattr(task, n))) for n in ("test", "hyper_validation", "clean", "train")}  # fmt: skip
    right = {n: value.argmax(1) for n, value in logits.items()}

    def share(name, labels):
        return float((right[name] == labels).double().mean())

    hyper, test = task.hyper_validation, task.test
    assert metrics["test_accuracy"] == pytest.approx(share("test", test.truth))
    assert metrics["hyper_accuracy"] == pytest.approx(share("hyper_validation", hyper.targets))
    assert metrics["hyper_true_accuracy"] == pytest.approx(share("hyper_validation", hyper.truth))
    assert metrics["hyper_accuracy"] != metrics["hyper_true_accuracy"]
    assert metrics["train_accuracy"] == pytest.approx(share("train", task.train.targets))
    assert metrics["train_true_accuracy"] == pytest.approx(share("train", task.train.truth))
    clean_loss = functional.cross_entropy(logits["clean"], task.clean.truth)
    assert metrics["clean_loss"] == pytest.approx(float(clean_loss), rel=1e-5)
    confusion = np.zeros((10, 10), dtype=int)
    for true, guess in zip(test.truth.tolist(), right["test"].tolist(), strict=True):
        confusion[true, guess] += 1
    assert metrics["confusion"] == confusion.tolist()
    assert metrics["class_accuracy"] == pytest.approx(
        (confusion.diagonal() / confusion.sum(1)).tolist()
    )


def test_the_curve_holds_every_evaluation():
    outcome = fit(tiny, digits_task(), tiny_config("reweigh+ft", steps=9, drops=((5, 0.1),)))
    assert [(p["phase"], p["step"]) for p in outcome.curve] == [
        *(("main", step) for step in (0, 4, 8, 9)),
        ("fine_tune", 4),
    ]
    assert [p["learning_rate"] for p in outcome.curve] == pytest.approx(
        [0.05, 0.05, 0.005, 0.005, 0.005]
    )
    assert outcome.curve[-1]["test_accuracy"] == outcome.metrics["test_accuracy"]
    assert all("clean_batch_loss" in p for p in outcome.curve[1:4])
    assert "clean_batch_loss" not in outcome.curve[4]


def test_the_ledger_is_the_main_phase_alone():
    task, steps = digits_task(), 9
    seen = fit(tiny, task, tiny_config("reweigh+ft", steps=steps)).ledger.table()["seen"]
    pairs = PairedBatches(task.train, task.clean, seed=0, options=OPTIONS)
    expected = np.zeros(len(task.train), dtype=int)
    for pair in pairs.until(steps):
        np.add.at(expected, pair.train_ids.numpy(), 1)
    np.testing.assert_array_equal(seen, expected)
    assert not fit(tiny, task, tiny_config("clean_only", steps=2)).ledger.table()["seen"].any()


def test_the_ledger_counts_how_often_the_model_was_against_a_label():
    """Beside the probabilities of a loop written out; with two classes these are other predictions."""
    task = table_task(lambda rows: (rows[:, 0] > 0.3).long(), clean=10)
    config = tiny_config("uniform", drops=(), optimizer=Optimizer(learning_rate=0.05, momentum=0.5))
    found = fit(lambda: nn.Linear(5, 2), task, config).ledger.table()
    torch.manual_seed(config.seed)
    model, o = nn.Linear(5, 2), config.optimizer
    sgd = torch.optim.SGD(model.parameters(), lr=o.learning_rate, momentum=o.momentum)
    against, seen = np.zeros(100), np.zeros(100)
    options = replace(config.batch, clean_size=min(config.batch.clean_size, 10))
    for pair in PairedBatches(task.train, task.clean, seed=0, options=options).until(12):
        outputs = model(pair.train.inputs)
        other = outputs.argmax(1) != pair.train.targets
        np.add.at(against, pair.train_ids.numpy(), other.numpy())
        np.add.at(seen, pair.train_ids.numpy(), 1)
        sgd.zero_grad()
        functional.cross_entropy(outputs, pair.train.targets).backward()
        sgd.step()
    assert 0 < against.sum() < seen.sum()
    known = seen > 0
    np.testing.assert_allclose(found["against_share"][known], (against / seen)[known], atol=1e-12)
    focal = fit(lambda: nn.Linear(5, 2), task, tiny_config("focal", steps=2)).ledger.table()
    assert np.isnan(focal["against_share"]).all()  # its loss is not the label's


def test_accumulating_pieces_equals_the_whole_batch():
    task = digits_task()
    whole = fit(linear, task, tiny_config("uniform"))
    pieces = fit(linear, task, tiny_config("uniform", accumulate=5))
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(value, pieces.model.state_dict()[name], rtol=1e-5, atol=1e-6)
    assert (whole.ledger.table()["seen"] == pieces.ledger.table()["seen"]).all()
    assert (pieces.ledger.table()["mean_weight"][pieces.ledger.table()["seen"] > 0] == 1).all()


@pytest.mark.parametrize("accumulate", [5, 25])
def test_pieces_are_weighed_as_the_whole_batch(accumulate):
    """Also one by one, where each would have weight 1 or 0 by itself."""
    task = digits_task()
    whole = fit(linear, task, tiny_config("reweigh", steps=4))
    pieces = fit(linear, task, tiny_config("reweigh", steps=4, accumulate=accumulate))
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(value, pieces.model.state_dict()[name], rtol=1e-4, atol=1e-6)
    one, two = whole.ledger.table(), pieces.ledger.table()
    assert one["seen"].tolist() == two["seen"].tolist()
    assert one["mean_weight"] == pytest.approx(two["mean_weight"], rel=1e-3, abs=1e-4, nan_ok=True)
    assert whole.curve[-1]["train_loss"] == pytest.approx(pieces.curve[-1]["train_loss"], rel=1e-4)


def test_clipping_bounds_the_first_update():
    def moved(clip):
        config = tiny_config(
            "uniform", steps=1, clip=clip, optimizer=Optimizer(learning_rate=1.0, momentum=0.0)
        )
        torch.manual_seed(config.seed)
        before = linear().state_dict()
        after = fit(linear, digits_task(), config).model.state_dict()
        return float(sum((after[n] - before[n]).square().sum() for n in before).sqrt())

    free = moved(None)
    assert free > 0.1
    assert moved(0.1) == pytest.approx(0.1, rel=1e-3)
    assert moved(10 * free) == pytest.approx(free, rel=1e-3)


def test_one_logit_is_binary():
    task = table_task(lambda rows: (rows[:, 0] > 0).long())
    config = Config(
        "reweigh", steps=150, batch=BatchOptions(20, 10), optimizer=Optimizer(learning_rate=0.1)
    )
    outcome = fit(lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), task, config)
    assert outcome.test_accuracy > 0.9
    assert np.sum(outcome.metrics["confusion"]) == len(task.test)
    assert "hyper_accuracy" not in outcome.metrics  # the part is empty


def test_real_targets_are_a_regression():
    task = table_task(lambda rows: rows[:, 0] - rows[:, 1], classes=())
    config = Config(
        "reweigh", steps=200, batch=BatchOptions(20, 10), optimizer=Optimizer(learning_rate=0.05)
    )
    outcome = fit(lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), task, config)
    rows, truth = task.test.inputs[task.test.ids], task.test.truth
    with torch.no_grad():
        error = functional.mse_loss(outcome.model(rows), truth)
    assert outcome.metrics["test_loss"] == pytest.approx(float(error), rel=1e-4)
    assert outcome.metrics["test_loss"] < 0.05
    assert "test_accuracy" not in outcome.metrics


def test_a_criterion_of_ones_own_is_what_is_trained_and_reported():
    def absolute(outputs, targets):
        return (outputs - targets).abs()

    task = table_task(lambda rows: rows[:, 0], classes=())
    config = Config("uniform", steps=5, batch=BatchOptions(20, 10))
    outcome = fit(lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), task, config, criterion=absolute)  # fmt: skip
    with torch.no_grad():
        error = absolute(outcome.model(task.test.inputs[task.test.ids]), task.test.truth).mean()
    assert outcome.metrics["test_loss"] == pytest.approx(float(error), rel=1e-5)


def test_outputs_that_fit_no_loss_are_refused():
    with pytest.raises(SettingError, match=r"expected \[n, 10\] logits"):
        fit(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), digits_task(), tiny_config())
    task = table_task(lambda rows: rows[:, 0], classes=())
    with pytest.raises(SettingError, match="equal shapes"):
        fit(lambda: nn.Linear(5, 1), task, Config("uniform", steps=1, batch=BatchOptions(20, 10)))


def test_a_plain_method_needs_no_clean_part_and_ours_does():
    task = table_task(lambda rows: (rows[:, 0] > 0).long(), clean=0)
    config = Config("uniform", steps=2, batch=BatchOptions(20, 10))
    assert "clean_loss" not in fit(lambda: nn.Linear(5, 2), task, config).metrics
    with pytest.raises(SettingError, match="clean"):
        fit(lambda: nn.Linear(5, 2), task, replace(config, method="reweigh"))


def test_options_reach_the_method():
    task = digits_task()
    literal = fit(tiny, task, tiny_config("reweigh_literal"))
    optional = fit(tiny, task, tiny_config("reweigh", options={"safeguard": None}))
    assert_same(literal, optional)
    with pytest.raises(UnknownNameError, match="did you mean 'safeguard'"):
        fit(tiny, task, tiny_config("reweigh", options={"safegard": None}))


def test_a_baseline_at_hand_equals_one_trained_on_the_way(tmp_path):
    task, config = digits_task(), tiny_config("s_model_conf+ft")
    baseline = fit(tiny, task, tiny_config("uniform"), out=tmp_path / "baseline")
    alone = fit(tiny, task, config)
    for given in (tmp_path / "baseline", baseline.model.state_dict()):
        with_it = fit(tiny, task, config, pretrained=given)
        assert with_it.metrics == alone.metrics
        assert with_it.curve == [p for p in alone.curve if p["phase"] != "pretrain"]
    assert [p for p in alone.curve if p["phase"] == "pretrain"] == [
        {**p, "phase": "pretrain"} for p in baseline.curve
    ]
    with pytest.raises(SettingError, match="expected a baseline"):
        fit(tiny, task, replace(config, seed=1), pretrained=tmp_path / "baseline")


def test_fine_tuning_trains_on_the_clean_part():
    task = digits_task()
    before = fit(linear, task, tiny_config("uniform"))
    tune = FineTune(60, learning_rate=0.5)
    after = fit(linear, task, tiny_config("uniform+ft", fine_tune=tune))
    assert after.metrics["clean_loss"] < 0.5 * before.metrics["clean_loss"]
    assert (before.ledger.table()["seen"] == after.ledger.table()["seen"]).all()


def test_augmented_images_and_several_threads_and_adam_train():
    augmentation = data.Augmentation(pad=1, flip=False)
    batch = replace(OPTIONS, augmentation=augmentation)
    for name in ("adam", "adamw"):
        config = tiny_config("reweigh", batch=batch, optimizer=Optimizer(name, 0.01, weight_decay=0.1))  # fmt: skip
        assert_same(
            fit(tiny, digits_task(), config),
            fit(tiny, digits_task(), replace(config, threads=1)),
        )


def test_bfloat16_trains_near_float32():
    task = digits_task()
    exact = fit(linear, task, tiny_config("reweigh", steps=30))
    mixed = fit(linear, task, tiny_config("reweigh", steps=30, precision="bf16"))
    again = fit(linear, task, tiny_config("reweigh", steps=30))
    assert_same(exact, again)
    assert mixed.metrics["test_loss"] != exact.metrics["test_loss"]
    assert mixed.metrics["test_loss"] == pytest.approx(exact.metrics["test_loss"], rel=0.05)
    assert mixed.model[1].weight.dtype == torch.float32


def test_a_data_loader_that_another_trainer_left_at_its_end_changes_nothing():
    accelerate = pytest.importorskip("accelerate")
    before = fit(linear, digits_task(), tiny_config("uniform", accumulate=5))
    loader = accelerate.Accelerator().prepare(torch.utils.data.DataLoader(torch.arange(4)))
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)  # not finished: the state of the process still points at it
    after = fit(linear, digits_task(), tiny_config("uniform", accumulate=5))
    for name, value in before.model.state_dict().items():
        assert torch.equal(value, after.model.state_dict()[name])
