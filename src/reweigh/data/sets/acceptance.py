"""Whether decoded arrays are the data set they should be: shapes, counts, digests."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from .catalog import SOURCES, Source
from .layouts import Arrays, Decoded
from .store import Manifest, digests


def accept(entry: Source, decoded: Decoded, origin: str) -> Manifest:
    """The manifest of decoded arrays that are what they should be; raises on anything else."""
    arrays = decoded.arrays
    _check_shapes(entry, arrays)
    computed = digests(arrays)
    if entry.subset and _is_balanced_part(entry, arrays):
        return Manifest(entry.subset, origin, decoded.layout, computed, subset=True)
    sizes = (len(arrays["train_labels"]), len(arrays["test_labels"]))
    if sizes != (entry.train, entry.test):
        raise DataError(
            f"{entry.name} from {origin} has {sizes[0]:,} train and {sizes[1]:,} test images; "
            f"expected {entry.train:,} and {entry.test:,}: truncated, or another data set"
        )
    altered = [name for name, pinned in entry.digests.items() if computed[name] != pinned] + [
        name
        for name, md5 in decoded.md5.items()
        if entry.file_md5 and md5 != entry.file_md5.get(name)
    ]
    if altered:
        raise DataError(
            f"{entry.name} from {origin} ({decoded.layout} form): {', '.join(altered)} "
            "differ from the published data; fetch or copy it again"
        )
    return Manifest(entry.name, origin, decoded.layout, computed)


def _check_shapes(entry: Source, arrays: Arrays) -> None:
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.shape[1:] != entry.shape or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{part} images have shape {images.shape} and labels {labels.shape}; expected "
                f"(n, {', '.join(map(str, entry.shape))}) and (n,): not {entry.name}"
            )
        if len(labels) and labels.max() >= len(entry.classes):
            raise DataError(
                f"{part} labels go up to {labels.max()}; {entry.name} has "
                f"{len(entry.classes)} classes: damaged, or another data set"
            )


def _is_balanced_part(entry: Source, arrays: Arrays) -> bool:
    """A deliberate subset has equally many images of every class; a truncated file has not."""
    full = SOURCES["cifar100"]
    for part, size in (("train", full.train), ("test", full.test)):
        counts = np.bincount(arrays[f"{part}_labels"], minlength=len(entry.classes))
        if counts.min() != counts.max() or not 0 < counts.sum() < size:
            return False
    return True
