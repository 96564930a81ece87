"""--encoder for images: a local transformers model, frozen or fine-tuned, with random weights here."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import reweigh
from reweigh.app import Options, export_model, train
from reweigh.errors import DataError, SettingError
from support.own_data import images

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        image_size=8, patch_size=4,
    )  # fmt: skip
    transformers.ViTModel(config).save_pretrained(folder / "vit")
    wants = {"size": {"height": 8, "width": 8}, "image_mean": [0.4] * 3, "image_std": [0.2] * 3}
    (folder / "vit" / "preprocessor_config.json").write_text(json.dumps(wants))
    images(folder / "photos", 20, 0)
    images(folder / "checked", 8, 1)
    return folder


def asked(here, **changes):
    usual = {"data": here / "photos", "clean": here / "checked", "encoder": here / "vit"}
    return Options(**{**usual, "method": "reweigh", "steps": 3, "threads": 1, **changes})


@pytest.mark.parametrize("fine_tune", [False, True], ids=["frozen", "fine-tuned"])
def test_it_trains_and_predicts(here, tmp_path, fine_tune):
    train(asked(here, fine_tune=fine_tune), tmp_path / "run")
    predictor = reweigh.load(tmp_path / "run")
    network = predictor.network()
    before = transformers.ViTModel.from_pretrained(here / "vit").state_dict()
    same = all(
        torch.equal(value, before[name]) for name, value in network.body.state_dict().items()
    )
    assert same != fine_tune
    # By hand: the mean of the last hidden states of pixels scaled as the model was made for.
    pixels = torch.from_numpy(predictor.encoded(here / "checked")).float()
    assert pixels.shape == (8, 3, 8, 8)
    with torch.no_grad():
        hidden = network.body((pixels / 255 - 0.4) / 0.2).last_hidden_state
        expected = network.head(hidden.mean(1)).softmax(1)
    np.testing.assert_allclose(predictor.predict_proba(here / "checked"), expected, atol=1e-5)
    said = export_model(tmp_path / "run", tmp_path / "model.safetensors")
    names: dict[str, object] = {}
    exec(said.split("\n\n")[1], names)
    assert torch.equal(names["model"].head.weight, network.head.weight)


def test_what_it_cannot_be(here, tmp_path):
    with pytest.raises(SettingError, match="--fine-tune is for an image model"):
        Options(data="photos", clean="checked", fine_tune=True)
    with pytest.raises(SettingError, match="both give the network"):
        asked(here, model="a:b")
    with pytest.raises(SettingError, match="has a size of its own"):
        train(asked(here, image_size=8), tmp_path / "a")
    with pytest.raises(DataError, match="expected a folder with a saved"):
        train(asked(here, encoder=here / "photos"), tmp_path / "b")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    with pytest.raises(DataError, match="does not say what images"):
        train(asked(here, encoder=tmp_path / "text"), tmp_path / "c")


def test_a_timm_folder_is_refused_by_name(here, tmp_path):
    timm = {"architecture": "resnet18", "num_classes": 1000, "pretrained_cfg": {"tag": "a1_in1k"}}
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "config.json").write_text(json.dumps(timm))
    with pytest.raises(DataError, match=r"timm model \(resnet18\).*torchvision.*--model"):
        train(asked(here, encoder=tmp_path / "timm"), tmp_path / "run")
