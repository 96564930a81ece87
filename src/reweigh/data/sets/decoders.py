"""The file formats data sets come in, one function each: bytes in, uint8 arrays out.

    idx       magic 00 00 08 d, then d sizes as big-endian uint32, then the bytes        (MNIST)
    binary    records of 1 or 2 label bytes and 3,072 pixel bytes, planes red green blue (CIFAR)
    pickle    a dict: data [n, 3072] in the same planes, labels                          (CIFAR)
    sheet     a PNG, each row one 32x32 image, pixels red green blue                       (CIFAR)
    csv       a header, then rows label,pixel,pixel,...                                  (MNIST)
    torch     a zip with data.pkl: a dict of label arrays [n], by who gave them       (CIFAR-10N)

Every reader checks its length to the byte: a truncated file raises and is named, never half-read.
"""

import io
import json
import math
import warnings
import zipfile
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ...optional import optional
from .pickles import read_pickle

Bytes: TypeAlias = npt.NDArray[np.uint8]

_PIXELS = 3 * 32 * 32
_LARGEST_PICKLE = 2**26


class LabelledImages(NamedTuple):
    """Images [n, c, h, w] and labels [n], both uint8."""

    images: Bytes
    labels: Bytes


def read_idx(raw: bytes, name: str) -> Bytes:
    """One idx file of bytes, in its own shape."""
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{name} begins with {raw[:4].hex()}; expected 000008..: not an idx file")
    head = 4 + 4 * raw[3]
    shape = tuple(int(size) for size in np.frombuffer(raw[4:head], dtype=">u4"))
    if len(shape) != raw[3] or len(raw) != head + math.prod(shape):
        raise _length(name, len(raw), head + math.prod(shape))
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape)


def read_binary(raw: bytes, name: str, *, label_bytes: int) -> LabelledImages:
    """CIFAR records; with two label bytes (CIFAR-100: coarse, fine) the last one is the label."""
    record = label_bytes + _PIXELS
    if len(raw) % record or not raw:
        raise _length(name, len(raw), max(1, round(len(raw) / record)) * record)
    table = np.frombuffer(raw, dtype=np.uint8).reshape(-1, record)
    images = np.ascontiguousarray(table[:, label_bytes:]).reshape(-1, 3, 32, 32)
    return LabelledImages(images, table[:, label_bytes - 1].copy())


def read_cifar_pickle(raw: bytes, name: str) -> LabelledImages:
    """One CIFAR pickle, of either set."""
    content = read_pickle(raw, name)
    data, labels = content.get("data"), content.get("fine_labels", content.get("labels"))
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise DataError(f"{name} has no 'data' of {_PIXELS} bytes a row; expected CIFAR's layout")
    return LabelledImages(data.reshape(-1, 3, 32, 32), _labels(labels, len(data), name))


def read_label_sets(raw: bytes, name: str, keys: Mapping[str, str]) -> dict[str, Bytes]:
    """A file of `torch.save` with several labels for the same images.

    keys: the name of an array here -> the name of it in the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            inside = [item for item in archive.infolist() if item.filename.endswith("/data.pkl")]
            if len(inside) != 1 or inside[0].file_size > _LARGEST_PICKLE:
                raise DataError(f"{name} has no single data.pkl of labels; expected torch's format")
            content = read_pickle(archive.read(inside[0]), name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(
            f"{name} is not a file of torch.save ({error}); fetch or copy it again"
        ) from error
    labels: dict[str, Bytes] = {}
    for own, theirs in keys.items():
        values = content.get(theirs)
        if not isinstance(values, np.ndarray) or values.ndim != 1:
            raise DataError(f"{name} has no labels {theirs!r}; expected {', '.join(keys.values())}")
        labels[own] = values
    if len({len(values) for values in labels.values()}) != 1:
        raise DataError(f"{name} has label sets of different lengths; it is damaged")
    return labels


def read_sheet(raw: bytes, name: str) -> Bytes:
    """A lossless sheet of 32x32 colour images, each row one image: [n, 3, 32, 32]."""
    image_module = optional("PIL.Image", package="pillow", needed_for=f"reading {name}")
    try:
        with image_module.open(io.BytesIO(raw), formats=["PNG"]) as image:
            pixels = np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{name} is not a whole PNG ({error}); fetch or copy it again") from error
    if pixels.shape[1] != 32 * 32:
        raise DataError(f"{name} is {pixels.shape[1]} pixels wide; expected 1024, an image a row")
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def read_label_list(raw: bytes, name: str) -> Bytes:
    """A JSON list of labels."""
    try:
        labels = json.loads(raw)
    except ValueError as error:
        raise DataError(f"{name} is not whole JSON ({error}); fetch or copy it again") from error
    return _labels(labels, None, name)


def read_csv(raw: bytes, name: str) -> LabelledImages:
    """`label,pixel,...` rows of a square grey image, with a header or without."""
    header = int(raw[:1].isalpha())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy warns of a file without rows
            table = np.loadtxt(
                io.BytesIO(raw), np.int16, comments=None, delimiter=",", skiprows=header, ndmin=2
            )
    except (ValueError, Warning) as error:
        width = raw[: raw.find(b"\n")].count(b",") + 1
        raise DataError(f"{name} has a row that is not {width} numbers; it is damaged") from error
    for value in (table.min(), table.max()):
        if not 0 <= value <= 255:
            raise DataError(f"{name} has the value {value}; expected bytes, 0 ... 255")
    side = math.isqrt(table.shape[1] - 1)
    if side * side != table.shape[1] - 1 or not side:
        raise DataError(f"{name} has {table.shape[1]} columns; expected a label and a square image")
    pixels = table[:, 1:].astype(np.uint8).reshape(-1, 1, side, side)
    return LabelledImages(pixels, table[:, 0].astype(np.uint8))


def _labels(labels: object, count: int | None, name: str) -> Bytes:
    if not isinstance(labels, list) or not all(isinstance(v, int) and 0 <= v < 256 for v in labels):
        raise DataError(f"{name} has no list of labels 0 ... 255; expected one label an image")
    if count is not None and len(labels) != count:
        raise DataError(f"{name} has {len(labels)} labels for {count} images; it is damaged")
    return np.array(labels, dtype=np.uint8)


def _length(name: str, length: int, expected: int) -> DataError:
    return DataError(
        f"{name} is {length:,} bytes long; expected {expected:,}: truncated or not this format; "
        "fetch or copy it again"
    )
