"""The CIFAR-100 path on real images, where a subset of them is at hand.

Looked for in $REWEIGH_CIFAR100_SUBSET, else beside this checkout in shared/data/cifar-100-subset: a
folder with train.bin and test.bin (or .xz), 50 train and 10 test images a class.
"""

import os
from pathlib import Path

import pytest
import torch

from reweigh import data, models

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "cifar-100-subset"
FOLDER = Path(os.environ.get("REWEIGH_CIFAR100_SUBSET") or BESIDE)


@pytest.fixture(scope="module")
def subset(tmp_path_factory) -> data.Dataset:
    if not FOLDER.is_dir():
        pytest.skip("no real CIFAR-100 subset at hand: only generated files were tested")
    root = tmp_path_factory.mktemp("root")
    manifest = data.adopt("cifar100", FOLDER, root=root)
    assert manifest.subset
    return data.load(manifest.name, root=root)


def test_the_subset_is_marked_and_balanced(subset):
    assert subset.subset
    assert subset.name == "cifar100-subset"
    assert subset.class_counts().unique().tolist() == [50]
    assert subset.test.targets.bincount().unique().tolist() == [10]


@pytest.mark.parametrize("name", ["cifar100-uniform", "cifar100-background"])
def test_the_papers_tasks_run_on_it(subset, name):
    recipe = data.scaled(data.preset(name, seed=2), examples=len(subset.train))
    task = data.prepare(subset, recipe, seed=2)
    assert len(task.hyper_validation) == 500
    assert task.train.changed.double().mean().item() == pytest.approx(0.4, abs=0.01)
    options = data.BatchOptions(size=8, clean_size=8, augmentation=data.AUGMENTATIONS["standard"])
    pair = next(data.PairedBatches(task.train, task.clean, seed=2, options=options))
    torch.manual_seed(0)
    assert models.build("resnet20", classes=100)(pair.train.inputs).shape == (8, 100)


def test_photographs_are_smooth(subset):
    """Neighbouring pixels are alike only if rows, columns and planes were put together rightly."""
    images = subset.train.inputs[:500].double()
    for axis in (2, 3):
        step = images.diff(dim=axis).abs().mean().item()
        assert step < 0.35 * images.std().item()
