"""Which files make a data set, in each form it is published in, and how to put them together.

A file layout is a list of file names and a function from their bytes to four arrays. Files may lie in
any sub-folder and be compressed with gzip or xz.
"""

import gzip
import hashlib
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ...errors import DataError
from . import archives, decoders
from .decoders import Bytes, LabelledImages

Arrays: TypeAlias = dict[str, Bytes]
"""train_images and test_images [n, c, h, w], train_labels and test_labels [n]; or labels alone."""

Assemble: TypeAlias = Callable[[Mapping[str, bytes]], Arrays]
"""Files by name, in the order of their layout, to arrays."""
ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")

HUMAN_KEYS = MappingProxyType(
    {
        "true_labels": "clean_label",
        "aggregate_labels": "aggre_label",
        "random1_labels": "random_label1",
        "random2_labels": "random_label2",
        "random3_labels": "random_label3",
        "worst_labels": "worse_label",
    }
)
"""The arrays of CIFAR-10N, [n] each, and what its file calls them. `true_labels` are CIFAR-10's own."""
LABEL_NAMES = tuple(HUMAN_KEYS)


@dataclass(frozen=True)
class FileLayout:
    """A form of a data set: all of `files` must be there; `assemble` makes arrays of their bytes."""

    name: str
    files: tuple[str, ...]
    assemble: Assemble


def _idx(files: Mapping[str, bytes]) -> Arrays:
    arrays = [decoders.read_idx(content, name) for name, content in files.items()]
    grey = [array[:, None] if array.ndim == 3 else array for array in arrays]
    return dict(zip(ARRAY_NAMES, grey, strict=True))


def _sheets(files: Mapping[str, bytes]) -> Arrays:
    *train, test = [decoders.read_sheet(files[name], name) for name in SHEETS.files[:6]]
    labels = [decoders.read_label_list(files[name], name) for name in SHEETS.files[6:]]
    arrays = (np.concatenate(train), labels[0], test, labels[1])
    return dict(zip(ARRAY_NAMES, arrays, strict=True))


def _parts(read: Callable[[bytes, str], LabelledImages]) -> Assemble:
    """Of files with images and labels: all but the last are train, in order; the last is test."""

    def assemble(files: Mapping[str, bytes]) -> Arrays:
        *train, test = [read(content, name) for name, content in files.items()]
        arrays = (*map(np.concatenate, zip(*train, strict=True)), *test)
        return dict(zip(ARRAY_NAMES, arrays, strict=True))

    return assemble


_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

IDX = FileLayout(
    "idx",
    (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ),
    _idx,
)
CSV = FileLayout("csv", ("mnist_train.csv", "mnist_test.csv"), _parts(decoders.read_csv))
CIFAR10_PICKLE = FileLayout("pickle", _BATCHES, _parts(decoders.read_cifar_pickle))
CIFAR10_BINARY = FileLayout(
    "binary",
    tuple(f"{name}.bin" for name in _BATCHES),
    _parts(partial(decoders.read_binary, label_bytes=1)),
)
# The registry package spells it so.
SHEETS = FileLayout(
    "sheets",
    (*(f"{name}.png" for name in _BATCHES), "train_lables.json", "test_lables.json"),
    _sheets,
)
CIFAR100_PICKLE = FileLayout("pickle", ("train", "test"), _parts(decoders.read_cifar_pickle))
CIFAR100_BINARY = FileLayout(
    "binary", ("train.bin", "test.bin"), _parts(partial(decoders.read_binary, label_bytes=2))
)


def _label_sets(files: Mapping[str, bytes]) -> Arrays:
    ((name, content),) = files.items()
    return decoders.read_label_sets(content, name, HUMAN_KEYS)


HUMAN_LABELS = FileLayout("torch", ("CIFAR-10_human.pt",), _label_sets)


@dataclass(frozen=True)
class Decoded:
    """Arrays, the form they were read from, and the md5 of every file of it, uncompressed."""

    arrays: Arrays
    layout: str
    md5: Mapping[str, str]


def decode(path: Path, layouts: tuple[FileLayout, ...], workspace: Path) -> Decoded:
    """Read the first layout that is complete in `path`: a folder, an archive, a folder of one, or
    the only file of a layout.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; expected a folder or an archive of the data set")
    known = {name for layout in layouts for name in layout.files}
    files = {path.name: path} if path.is_file() and path.name in known else _files(path, workspace)
    for layout in layouts:
        if all(name in files for name in layout.files):
            contents = {name: _content(files[name]) for name in layout.files}
            md5 = {
                name: hashlib.md5(content, usedforsecurity=False).hexdigest()
                for name, content in contents.items()
            }
            return Decoded(layout.assemble(contents), layout.name, md5)
    # The layout with most of its files says best what is missing.
    nearest = max(layouts, key=lambda layout: sum(name in files for name in layout.files))
    missing = [name for name in nearest.files if name not in files]
    if len(missing) < len(nearest.files):
        raise DataError(f"{path} lacks {', '.join(missing)} of the {nearest.name} form; add it")
    forms = "; ".join(f"{layout.name}: {', '.join(layout.files)}" for layout in layouts)
    raise DataError(f"{path} holds no form of this data set; expected the files of one: {forms}")


def _files(path: Path, workspace: Path) -> dict[str, Path]:
    """Files by name without .gz or .xz; of two with one name, the one nearer to the top."""
    folder = path
    if path.is_file():
        if not archives.is_archive(path):
            raise DataError(f"{path} is no folder and no archive; expected .tar.gz, .zip or alike")
        folder = workspace / "unpacked"
        archives.unpack(path, folder)
    # An archive may lie inside of another one. In a folder of the user's, only those at its top.
    inside = folder.rglob("*") if path.is_file() else path.iterdir()
    for k, inner in enumerate(sorted(p for p in inside if p.is_file())):
        # By name only: the folder may be where a browser puts everything.
        known = "mnist" in inner.name.lower() or "cifar" in inner.name.lower()
        if known and archives.is_archive(inner):
            archives.unpack(inner, workspace / f"unpacked{k}")
    files: dict[str, Path] = {}
    below = [p for top in (folder, workspace) for p in top.rglob("*") if p.is_file()]
    for file in sorted(below, key=lambda p: (len(p.parts), p)):
        name = file.name.removesuffix(".gz").removesuffix(".xz")
        # "train-images.idx3-ubyte" is how some mirrors name them.
        files.setdefault(name.replace(".idx", "-idx"), file)
    return files


def _content(file: Path) -> bytes:
    try:
        if file.suffix == ".gz":
            return gzip.decompress(file.read_bytes())
        if file.suffix == ".xz":
            return lzma.decompress(file.read_bytes())
        return file.read_bytes()
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise DataError(
            f"{file} is truncated or damaged ({error}); fetch or copy it again"
        ) from error
