"""--model: any nn.Module is trained, kept, and read back; what it cannot be is said in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import reweigh
from reweigh.app import Options, network_candidates, train
from reweigh.cli import main
from support.own_data import images, table, texts

FACTORIES = '''
import math
import torch
from torch import nn

def normed(*, shape, outputs):
    """With buffers, one of them without dimensions, and tied parameters."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6),
                          nn.Linear(6, 6), nn.Linear(6, outputs))
    model[5].weight = model[4].weight
    return model

class Conv(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.conv, self.last = nn.Conv2d(shape[0], 4, 3), nn.Linear(4, outputs)
    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3)))

def number(*, shape, outputs):
    return nn.Sequential(nn.Linear(*shape, 1), nn.Flatten(0))

def column(*, shape, outputs):
    return nn.Linear(*shape, 1)

def no_module(*, shape, outputs):
    return 3

def positional(width):
    return nn.Linear(width, 2)

def frozen(*, shape, outputs):
    return nn.Linear(*shape, outputs).requires_grad_(False)

def narrow(*, shape, outputs):
    return nn.Linear(1, outputs)

constant = 3
'''


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_model")
    (folder / "factories_of_a_test.py").write_text(FACTORIES)
    for name, frame in {"rows": table(60, 0, noise=0.3)[0], "checked": table(20, 1)[0]}.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(autouse=True)
def inside(here, monkeypatch):
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))


def asked(**changes):
    usual = {
        "data": "rows.csv",
        "clean": "checked.csv",
        "target": "label",
        "threads": 1,
        "steps": 5,
    }
    return Options(**{**usual, **changes})


def test_it_is_kept_and_loads_in_plain_pytorch(here, capsys, monkeypatch):
    monkeypatch.setattr(network_candidates, "FINE_TUNE_STEPS", 3)
    train(asked(model="factories_of_a_test:normed"), here / "run")
    summary = pd.read_json(here / "run" / "summary.json", typ="series")
    assert {each["name"] for each in summary["candidates"]} == {"reweigh", "fine_tuned", "plain"}
    with pytest.raises(SystemExit) as ended:
        main(["export", "run", "--out", "model.safetensors"])
    assert ended.value.code == 0
    recipe = capsys.readouterr().out.split("\n\n")[1]
    assert len(recipe.strip().splitlines()) == 5
    names: dict[str, object] = {}
    exec(recipe, names)
    predictor = reweigh.load("run")
    inputs = torch.from_numpy(predictor.encoded("checked.csv"))
    with torch.no_grad():
        plain = names["model"](inputs).double().softmax(1).numpy()
    np.testing.assert_allclose(predictor.predict_proba("checked.csv"), plain, atol=1e-6)
    assert set(predictor.predict("checked.csv")) <= {"cat", "dog", "eel"}
    assert len(pd.read_parquet(here / "run" / "audit.parquet")) == 60


def test_images_and_texts_and_numbers(here):
    images(here / "photos", 20, 0)
    images(here / "checked_photos", 8, 1)
    pictures = Options(data=Path("photos"), clean=Path("checked_photos"), model="factories_of_a_test:Conv",
                       method="reweigh", steps=3, image_size=8)  # fmt: skip
    train(pictures, here / "images")
    assert len(reweigh.load("images").predict("photos")) == 20
    for name, rows in (("texts", 40), ("checked_texts", 16)):
        texts(rows, rows)[0].to_csv(f"{name}.csv", index=False)
    said = asked(data=Path("texts.csv"), clean=Path("checked_texts.csv"), text="review", target="stars",
                 model="factories_of_a_test:normed", method="reweigh")  # fmt: skip
    train(said, here / "of_texts")
    assert len(reweigh.load("of_texts").predict("checked_texts.csv")) == 16
    train(asked(target="length", model="factories_of_a_test:number"), here / "numbers")
    assert reweigh.load("numbers").predict("checked.csv").dtype == np.float64


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nothing", "expected package.module:factory"),
        ("factories_of_a_test:", "expected package.module:factory"),
        ("no_such_module:x", "cannot be imported"),
        ("factories_of_a_test:norned", "did you mean 'normed'"),
        ("factories_of_a_test:constant", "is no function"),
        ("factories_of_a_test:no_module", "expected a torch.nn.Module"),
        ("factories_of_a_test:positional", "expected def factory(*, shape, outputs)"),
        ("factories_of_a_test:frozen", "without a parameter to train"),
        ("factories_of_a_test:narrow", "cannot take inputs of shape"),
        ("factories_of_a_test:column", "expected a tensor of shape (2, 3)"),
    ],
)
def test_what_a_model_cannot_be(here, capsys, model, says):
    line = ["train", "--data", "rows.csv", "--clean", "checked.csv", "--target", "label"]
    with pytest.raises(SystemExit) as ended:
        main([*line, "--model", model, "--out", "refused"])
    assert ended.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert says in error
    # A model that was refused does not bind the folder.
    assert not (here / "refused" / "options.json").exists()


def test_a_run_whose_model_is_gone_says_so(here):
    train(asked(model="factories_of_a_test:normed", method="reweigh"), here / "lost")
    path = here / "lost" / "network.json"
    path.write_text(path.read_text().replace("factories_of_a_test", "factories_moved_away"))
    with pytest.raises(
        reweigh.errors.SettingError, match="factories_moved_away cannot be imported"
    ):
        reweigh.load("lost")
