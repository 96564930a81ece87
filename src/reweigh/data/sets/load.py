"""From a name to a data set in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ...errors import DataError
from ...optional import optional
from ...rng import Draws
from ..tasks import Dataset, Examples, first_of_each
from . import store
from .catalog import Source, source_named
from .decoders import Bytes
from .fetch import fetch, verify
from .origins import Progress, silent


def load(
    name: str,
    *,
    root: str | Path | None = None,
    download: bool = False,
    progress: Progress = silent,
) -> Dataset:
    """The data set called `name`, checked against its digests; with `download`, fetched if absent.

    Images are memory-mapped: opening costs one pass of sha256 (about 0.2 s for CIFAR-10), and pages
    are shared between processes.
    """
    entry = source_named(name)
    if entry.name == "digits":
        return _digits(entry)
    if entry.labels_of:
        return _relabelled(entry, root=root, download=download, progress=progress)
    folder = store.data_root(root)
    if not store.is_stored(folder, entry.name):
        _explain_subset(entry, folder)
        if download and entry.origins:
            fetch(entry, root=folder, progress=progress)
    manifest = verify(entry, root=folder)
    arrays, _ = store.read_stored(folder, entry.name, check=False)
    return Dataset(
        entry.name,
        train=_examples(arrays["train_images"], arrays["train_labels"]),
        test=_examples(arrays["test_images"], arrays["test_labels"]),
        classes=entry.classes,
        subset=manifest.subset,
    )


def _relabelled(
    entry: Source, *, root: str | Path | None, download: bool, progress: Progress
) -> Dataset:
    """The images of another data set, with the labels that people gave to them."""
    base = load(entry.labels_of, root=root, download=download, progress=progress)
    folder = store.data_root(root)
    if download and not store.is_stored(folder, entry.name):
        fetch(entry, root=folder, progress=progress)
    verify(entry, root=folder)
    arrays, _ = store.read_stored(folder, entry.name, check=False)
    labels = {
        name.removesuffix("_labels"): torch.from_numpy(array.astype(np.int64))
        for name, array in arrays.items()
    }
    if not torch.equal(labels.pop("true"), base.train.targets):
        raise DataError(
            f"{folder / entry.name}: its labels are not in the order of {base.name}'s train images; "
            f"run: reweigh data fetch {entry.name} --again"
        )
    return replace(base, name=entry.name, given=labels)


def _explain_subset(entry: Source, folder: Path) -> None:
    """A stored subset is never handed out under the name of the full set."""
    if entry.subset and entry.subset != entry.name and store.is_stored(folder, entry.subset):
        raise DataError(
            f"{folder} has {entry.subset}, not the whole {entry.name}; ask for {entry.subset!r}, "
            f"or run: reweigh data fetch {entry.name}"
        )


def _examples(images: Bytes, labels: Bytes) -> Examples:
    return Examples(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def _digits(entry: Source) -> Dataset:
    """scikit-learn's 1,797 digits; 36 of each class, the same ones always, are the test set."""
    datasets = optional(
        "sklearn.datasets", package="scikit-learn", needed_for="the digits data set"
    )
    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    order = Draws(0, "digits", "test").permutation(len(labels))
    held = np.sort(first_of_each(labels, order, dict.fromkeys(range(10), 36), what="test digits"))
    kept = np.setdiff1d(np.arange(len(labels)), held)
    train, test = (_examples(images[ids], labels[ids]) for ids in (kept, held))
    return Dataset(entry.name, train, test, entry.classes, peak=16)
