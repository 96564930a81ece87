"""A run folder: what is in it, whose it is, and what is said when something is wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from reweigh import data
from reweigh.errors import DataError, DivergedError, ReweighWarning, SettingError, UnknownNameError
from reweigh.training import (
    PAPER,
    Config,
    FineTune,
    Optimizer,
    Schedule,
    bar,
    fit,
    phases,
    read_config,
)
from support.runs import Power, assert_same, cut_at, digits_task, tiny, tiny_config

FILES = {"config.json", "metrics.jsonl", "weights.parquet", "model.safetensors", "checkpoints"}


def test_a_finished_run_is_complete_and_is_read_back_at_once(tmp_path):
    import pandas

    task, config = digits_task(), tiny_config()
    outcome = fit(tiny, task, config, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert read_config(tmp_path)[0] == config
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [*outcome.curve, {"final": outcome.metrics}]
    for name, value in load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(value, outcome.model.state_dict()[name])
    frame = pandas.read_parquet(tmp_path / "weights.parquet")
    np.testing.assert_array_equal(frame["given_label"], task.train.targets)
    assert frame["seen"].sum() == config.steps * config.batch.size
    assert len(list((tmp_path / "checkpoints").iterdir())) == config.keep

    content = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    again = fit(tiny, task, config, out=tmp_path, progress=cut_at(1))  # no step is taken
    assert again.metrics == outcome.metrics
    assert again.curve == outcome.curve
    for name, values in outcome.ledger.table().items():
        np.testing.assert_array_equal(again.ledger.table()[name], values, err_msg=name)
    with torch.no_grad():
        images = task.test.inputs[:5].float()
        assert torch.equal(again.model(images), outcome.model(images))
    assert content == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_a_folder_of_another_run_is_refused(tmp_path):
    task, config = digits_task(), tiny_config(steps=2)
    fit(tiny, task, config, out=tmp_path)
    with pytest.raises(SettingError, match="steps: 2 and 3"):
        fit(tiny, task, replace(config, steps=3), out=tmp_path)
    with pytest.raises(SettingError, match="other data"):
        fit(tiny, digits_task(seed=1), config, out=tmp_path)
    with pytest.raises(SettingError, match="another model"):
        fit(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), task, config, out=tmp_path)
    with pytest.raises(DataError, match="is a file"):
        fit(tiny, task, config, out=tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json cannot be read"):
        fit(tiny, task, config, out=tmp_path)


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    task, config = digits_task(), tiny_config(checkpoint_every=3)
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(8))
    newest = max((tmp_path / "checkpoints").iterdir())
    assert newest.name.endswith("main-6.pt")
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(ReweighWarning, match="main-6.pt cannot be read"):
        resumed = fit(tiny, task, config, out=tmp_path)
    assert_same(resumed, fit(tiny, task, config))


def test_a_checkpoint_that_runs_code_is_not_read(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (exec, ("raise AssertionError('ran')",))

    task, config = digits_task(), tiny_config()
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(1))
    (tmp_path / "checkpoints" / "000009-main-3.pt").write_bytes(pickle.dumps(Bomb(), protocol=2))
    with pytest.warns(ReweighWarning, match="cannot be read"):
        fit(tiny, task, config, out=tmp_path)


def test_a_learning_rate_that_explodes_ends_in_one_error(tmp_path):
    optimizer = Optimizer(learning_rate=1e6, weight_decay=1e-3)
    config = tiny_config("uniform", steps=60, optimizer=optimizer, checkpoint_every=1)
    with pytest.raises(DivergedError, match=r"step \d+, train examples .*learning rate, 1e\+06"):
        fit(tiny, digits_task(), config, out=tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():  # the last good ones
        state = torch.load(path, weights_only=True)
        assert all(torch.isfinite(value).all() for value in state["model"].values())


@pytest.mark.parametrize("method", ["uniform", "reweigh"])
def test_a_broken_input_is_named(method):
    task = digits_task()
    images = task.train.inputs.float() / 16
    pairs = data.PairedBatches(
        task.train, task.clean, seed=0, options=data.BatchOptions(size=50, clean_size=20, peak=16)
    )
    guilty = int(pairs.pair(3).train_ids[7])
    images[task.train.ids[guilty]] = float("nan")
    parts = {n: replace(getattr(task, n), inputs=images) for n in ("train", "clean", "test", "hyper_validation")}  # fmt: skip
    with pytest.raises(DivergedError, match=f"inputs of train examples {guilty} are not finite"):
        fit(tiny, replace(task, **parts), tiny_config(method, evaluate_every=0))


def test_trackers_get_every_evaluation(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    task, config = digits_task(), tiny_config(trackers=("tensorboard",))
    with pytest.raises(Power):
        fit(tiny, task, config, out=tmp_path, progress=cut_at(9))
    outcome = fit(tiny, task, config, out=tmp_path)
    events = EventAccumulator(str(tmp_path / "trackers"))
    events.Reload()
    scalars = events.Scalars("test_accuracy")
    assert [event.step for event in scalars] == [point["step"] for point in outcome.curve]
    assert [event.value for event in scalars] == pytest.approx(
        [point["test_accuracy"] for point in outcome.curve]
    )
    with pytest.raises(SettingError, match="need a run folder"):
        fit(tiny, task, config)


def test_config_survives_json_and_refuses_what_it_does_not_know():
    config = Config(
        "reed_hard+es+ft",
        options={"beta": 0.7},
        batch=data.BatchOptions(augmentation=data.Augmentation(2), scaling=data.SCALINGS["symmetric"]),
        drops=((10, 0.1), (20, 0.1)),
        early_stop=Schedule(30, ((3, 0.5),)),
        fine_tune=FineTune(7, 0.1),
        trackers=("tensorboard",),
    )  # fmt: skip
    assert Config.of(config.json()) == config
    assert config.differences(replace(config, seed=4)) == ["seed: 0 and 4"]
    with pytest.raises(UnknownNameError, match="did you mean 'steps'"):
        Config.of('{"step": 4}')
    with pytest.raises(DataError, match="no config"):
        Config.of("[1]")


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0}, {"steps": 1.5}, {"seed": -1}, {"keep": 0}, {"clip": 0.0}, {"accumulate": 3},
        {"threads": -1}, {"drops": ((5, 0.0),)}, {"checkpoint_every": -1}, {"pretrain_steps": 0},
    ],
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(SettingError, match=r"expected|take"):
        Config(**wrong)


@pytest.mark.parametrize("wrong", [{"precision": "fp61"}, {"device": "gpu"}], ids=str)
def test_names_are_checked(wrong):
    with pytest.raises(UnknownNameError):
        Config(**wrong)
    with pytest.raises(UnknownNameError):
        Optimizer("sdg")
    with pytest.raises(UnknownNameError, match="did you mean 'reweigh'"):
        fit(tiny, digits_task(), Config("rewiegh"))


def test_the_papers_schedules():
    resnet = PAPER["resnet32"]
    config = Config("s_model_conf+es+ft", **vars(resnet), optimizer=Optimizer(learning_rate=0.1))
    before, main, tune = phases(config, pretrained=False)
    assert (before.method, before.schedule.steps) == ("uniform", 80_000)
    assert (main.schedule.steps, tune.schedule.steps) == (60_000, 5000)
    rates = [main.learning_rate(step) for step in (0, 39_999, 40_000, 49_999, 50_000, 59_999)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert tune.learning_rate(0) == pytest.approx(0.001)
    plain = phases(replace(config, method="uniform"), pretrained=False)
    assert [phase.name for phase in plain] == ["main"]
    assert plain[0].learning_rate(60_000) == pytest.approx(0.001)
    small = resnet.scaled(800)
    assert (small.drops, small.early_stop) == (
        ((400, 0.1), (600, 0.1)),
        Schedule(600, ((400, 0.1), (500, 0.1))),
    )
    assert small.fine_tune.steps == 50
    assert Config("uniform", steps=100, drops=((50, 0.1),)).stopped == Schedule(75, ((50, 0.1),))


def test_progress_counts_steps_and_shows_lines(capsys):
    seen = []
    fit(tiny, digits_task(), tiny_config("reweigh+ft"), progress=seen.append)
    assert [now.step for now in seen] == list(range(1, 17))
    assert {now.steps for now in seen} == {16}
    assert seen[0].loss == pytest.approx(float(seen[0].weighed.losses.mean()))
    with bar() as progress:
        for now in seen:
            progress(now)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("main 1/16: loss ")
    assert "clean " in lines[0]
    assert lines[-1].startswith("fine_tune 16/16: ")
    assert "accuracy" in lines[-1]


def test_progress_is_a_bar_on_a_terminal():
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    with bar(screen) as progress:
        fit(tiny, digits_task(), tiny_config(), progress=progress)
    assert "100%" in screen.getvalue()
    assert "effective" in screen.getvalue()
