"""reweigh export: onnxruntime says what `predict_proba` says, or a line says what can be exported."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import reweigh
from reweigh.app import Options, export_model, train
from reweigh.app.exported_module import SoftmaxModule, TreesModule, exported_parts
from reweigh.app.winner_file import KeptPart
from reweigh.candidates import Boosting, Forest, Member, SoftmaxRegression, mixed, one_hot
from reweigh.cli import main
from reweigh.data import BatchOptions
from reweigh.errors import DataError, MissingExtraError, UnsupportedModelError
from reweigh.models import MLP, MLPOptions
from support.own_data import images, table, texts

QUICK = {"steps": 4, "threads": 1}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Runs of several kinds, in one folder."""
    folder = tmp_path_factory.mktemp("export")
    for name, frame in {"rows": table(60, 0, noise=0.3)[0], "checked": table(20, 1)[0]}.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    images(folder / "photos", 20, 0)
    images(folder / "checked", 8, 1)
    for name, rows in (("texts", 40), ("checked_texts", 16)):
        texts(rows, rows)[0].to_csv(folder / f"{name}.csv", index=False)
    files = {"data": folder / "rows.csv", "clean": folder / "checked.csv", "hidden": 4, **QUICK}
    train(Options(**files, target="label", method="reweigh"), folder / "network")
    train(Options(**files, target="length", method="reweigh"), folder / "numbers")
    train(Options(**files, target="label", method="boosting_all"), folder / "trees")
    pictures = {"data": folder / "photos", "clean": folder / "checked", "image_size": 8, **QUICK}
    train(Options(**pictures, method="reweigh"), folder / "images")
    of_texts = {"data": folder / "texts.csv", "clean": folder / "checked_texts.csv", **QUICK}
    train(
        Options(**of_texts, text="review", target="stars", method="linear_all"), folder / "ngrams"
    )
    return folder


def ran(path, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"inputs": inputs})
    return found


@pytest.mark.parametrize("name", ["network", "trees", "images", "numbers"])
def test_onnxruntime_says_what_predict_says(here, tmp_path, name):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    assert "equal to 1e-05" in export_model(here / name, out)
    predictor = reweigh.load(here / name)
    data = here / ("checked" if name == "images" else "checked.csv")
    expected = predictor.predict_proba(data) if predictor.classes else predictor.predict(data)
    inputs = predictor.encoded(data)
    np.testing.assert_allclose(ran(out, inputs), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ran(out, inputs[:1]), expected[:1], rtol=1e-5, atol=1e-5)


def test_every_kind_and_their_blend_as_a_module():
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(90, 5)).astype(np.float32), draw.integers(0, 3, 90)
    soft, count = one_hot(labels, 3), np.ones(90)
    learners = (SoftmaxRegression(), Forest(trees=5), Boosting(rounds=4))
    models = [learner.fit(rows, soft, count) for learner in learners]
    torch.manual_seed(0)
    network = MLP(MLPOptions(inputs=5, hidden=(4,), classes=3)).eval()
    with torch.no_grad():
        said = [
            network(torch.from_numpy(rows)).softmax(1).numpy(),
            *(m.probabilities(rows) for m in models),
        ]
    members = [Member(f"{k}", 0.1 + k, 0.5 + 0.5 * k) for k in range(4)]
    parts = [
        KeptPart(m, "encoded", model) for m, model in zip(members, [network, *models], strict=True)
    ]
    with torch.no_grad():
        for part, expected in zip(parts, said, strict=True):
            alone = KeptPart(Member("it", 1.0, 1.0), "encoded", part.model)
            found = exported_parts([alone], BatchOptions())(torch.from_numpy(rows)).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-6)
        found = exported_parts(parts, BatchOptions())(torch.from_numpy(rows)).numpy()
    by_name = {m.name: p for m, p in zip(members, said, strict=True)}
    np.testing.assert_allclose(found, mixed(members, by_name), atol=1e-6)
    assert isinstance(exported_parts([KeptPart(Member("it", 1, 1), "encoded", models[1])], BatchOptions()), TreesModule)  # fmt: skip
    assert isinstance(exported_parts([KeptPart(Member("it", 1, 1), "encoded", models[0])], BatchOptions()), SoftmaxModule)  # fmt: skip


@pytest.mark.parametrize("name", ["network", "images", "numbers"])
def test_the_recipe_loads_a_network_in_five_lines(here, tmp_path, name):
    said = export_model(here / name, tmp_path / "model.safetensors")
    recipe = said.split("\n\n")[1]
    assert len(recipe.splitlines()) == 5
    names: dict[str, object] = {}
    exec(recipe, names)
    theirs = reweigh.load(here / name).network()
    for key, value in names["model"].state_dict().items():
        assert torch.equal(value, theirs.state_dict()[key])


def test_what_cannot_be_exported(here, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxscript")
    with pytest.raises(UnsupportedModelError, match="'linear_all', that learns from n-grams"):
        export_model(here / "ngrams", tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModelError, match="no single network, but boosting_all"):
        export_model(here / "trees", tmp_path / "model.safetensors")
    for out, says in (
        (tmp_path / "model.pt", "unknown ending"),
        (here / "network" / "model.safetensors", "file of the run itself"),
        (tmp_path / "no" / "model.onnx", "there is no folder"),
    ):
        with pytest.raises(DataError, match=says):
            export_model(here / "network", out)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path), "--out", str(tmp_path / "a.onnx")])
    assert ended.value.code == 2
    assert "finished run folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"reweigh\[onnx\]"):
        export_model(here / "network", tmp_path / "model.onnx")
