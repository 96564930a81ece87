"""A cell trains what its name says, shares what can be shared, and keeps what the figures need."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("sklearn")

import torch

from reweigh.data import BatchOptions, Recipe, load, prepare
from reweigh.experiments import cell_training
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.catalog.cifar import SMOKE
from reweigh.experiments.cell_training import cell_steps, run_cell
from reweigh.experiments.experiment import cells, described
from reweigh.experiments.grid import run_grid
from reweigh.experiments.method_stages import stages
from reweigh.experiments.weight_distribution import summary, weigh_unseen
from reweigh.models import MLP, MLPOptions


class Silent:
    def __getattr__(self, name):
        return lambda *_: None


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_with_every_method_at_smoke_scale(name, tmp_path):
    chosen = EXPERIMENTS[name]
    grid = cells(chosen, "smoke")
    about = described(chosen, "smoke", as_published=False)
    assert run_grid(grid, about, out=tmp_path, watcher=Silent()) == []
    lines = [json.loads(x) for x in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert len(lines) == len(grid)
    for line in lines:
        assert 0 <= line["metrics"]["test_accuracy"] <= 1
        details = json.loads((tmp_path / line["details"]).read_text())
        confusion = torch.tensor(details["confusion"])
        right = int(confusion.trace()) / int(confusion.sum())
        assert right == pytest.approx(line["metrics"]["test_accuracy"], abs=1e-6)
        assert details["curve"][-1]["step"] > 0


def cell(method, experiment="cifar10-background"):
    (found,) = cells(EXPERIMENTS[experiment], "smoke", methods=[method], seeds=1)
    return found


def test_stages_are_what_the_name_says():
    config = SMOKE.config
    assert [s.name for s in stages("uniform", config)] == ["uniform"]
    assert [s.name for s in stages("uniform+es+ft", config)] == ["uniform+es", "uniform+es+ft"]
    conf = stages("s_model_conf+es+ft", config)
    assert [(s.name, s.start, s.pretrained) for s in conf] == [
        ("uniform", "", ""),
        ("s_model_conf+es", "", "uniform"),
        ("s_model_conf+es+ft", "s_model_conf+es", ""),
    ]
    assert [s.steps for s in conf] == [30, 22, 10]
    tuned = conf[-1].config
    assert tuned.method == "clean_only"
    # 0.05 falls tenfold twice before the early stop
    assert tuned.optimizer.learning_rate == pytest.approx(0.05 * 0.01)
    assert cell_steps(cell("s_model_conf+es+ft")) == 62


def test_a_shared_stage_is_trained_once(tmp_path, monkeypatch):
    real, trained = cell_training.fit, []

    def counting(make_model, task, config, **options):
        def progress(now):
            if now.step == 1:
                trained.append(config.method)
            options["progress"](now)

        return real(make_model, task, config, **{**options, "progress": progress})

    monkeypatch.setattr(cell_training, "fit", counting)
    ticks = []
    results = {}
    for method in ("uniform+ft", "uniform", "s_model_conf", "s_model_conf+ft"):
        one = cell(method)
        before = sum(ticks)
        results[method] = run_cell(one, work=tmp_path, threads=1, tick=ticks.append)
        assert sum(ticks) - before == cell_steps(one)
    assert trained == ["uniform", "clean_only", "s_model_conf", "clean_only"]
    (tmp_path / "apart").mkdir()
    alone = run_cell(cell("uniform"), work=tmp_path / "apart", threads=1, tick=ticks.append)
    assert alone["metrics"] == results["uniform"]["metrics"]


def test_fine_tuning_goes_on_from_the_model_it_tunes(tmp_path):
    one = cell("uniform+ft")
    found = run_cell(one, work=tmp_path, threads=1, tick=lambda _: None)
    curve = found["details"]["curve"]
    tuned = [p for p in curve if p["phase"] == "fine_tune"]
    main = [p for p in curve if p["phase"] == "main"]
    assert tuned[0]["step"] == 0
    assert tuned[0]["test_accuracy"] == main[-1]["test_accuracy"]
    assert tuned[-1]["clean_loss"] < tuned[0]["clean_loss"]


def test_settings_and_seeds_do_not_share_stages(tmp_path):
    names = set()
    for seed in (0, 1):
        one = replace(cell("uniform"), seed=seed)
        names.add(cell_training._folder_name(one, stages("uniform", one.setup.config)[0]))
    other = replace(cell("uniform"), setting=(("noise", "uniform"), ("rate", 0.4)))
    names.add(cell_training._folder_name(other, stages("uniform", other.setup.config)[0]))
    changed = cell("uniform")
    setup = replace(changed.setup, recipe=replace(changed.setup.recipe, clean_per_class=4))
    changed = replace(changed, setup=setup)
    names.add(cell_training._folder_name(changed, stages("uniform", setup.config)[0]))
    assert len(names) == 4


def test_the_summary_of_weights_by_hand():
    batches = [
        {"right": [0.5, 0.0], "wrong": [0.5, 0.0]},
        {"right": [1.0, 0.0], "wrong": [0.0]},
    ]
    assert summary(batches) == {
        "wrong_zero": 2 / 3,
        "right_zero": 2 / 4,
        "wrong_weight": 0.5 / 2,
        "wrong_labels": 3 / 7,
    }


def test_unseen_images_are_weighed_by_their_alignment_with_the_clean_set():
    """Against the definition, gradient by gradient, on a network small enough for it."""
    recipe = Recipe(
        "digits", "background_flip", rate=0.4, background=3, clean_per_class=3,
        hyper_validation=200,
    )  # fmt: skip
    task = prepare(load("digits"), recipe, seed=0)
    torch.manual_seed(0)
    model = MLP(MLPOptions(hidden=(8,)))
    options = BatchOptions(size=20, peak=task.peak)
    _, found = weigh_unseen(model, task, options, background=3, rate=0.4, seed=0)
    assert len(found["classes"]) == 9
    for batch in found["classes"]:
        count = len(batch["right"]) + len(batch["wrong"])
        assert len(batch["wrong"]) == int(0.4 * count + 0.5)
        assert sum(batch["right"] + batch["wrong"]) == pytest.approx(1, abs=1e-4)

    def gradient(image, label):
        model.zero_grad()
        logits = model(image[None].float() / task.peak)
        torch.nn.functional.cross_entropy(logits, label[None]).backward()
        return torch.cat([p.grad.flatten().double() for p in model.parameters()])

    clean = task.clean
    target = torch.stack(
        [gradient(clean.inputs[i], y) for i, y in zip(clean.ids, clean.targets, strict=True)]
    ).mean(0)
    held = task.hyper_validation
    from reweigh.rng import Draws

    rows = Draws(0, "weights", "random").permutation(len(held))[:20]
    scores = torch.stack(
        [gradient(held.inputs[held.ids[r]], held.targets[r]) @ target for r in rows]
    ).clamp(min=0)
    expected = scores / scores.sum()
    wrong = held.changed[torch.from_numpy(rows)]
    assert found["random"][0]["right"] == pytest.approx(expected[~wrong].tolist(), abs=1e-4)
    assert found["random"][0]["wrong"] == pytest.approx(expected[wrong].tolist(), abs=1e-4)
