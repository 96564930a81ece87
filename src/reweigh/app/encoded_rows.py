"""Every row of a file through the encoder, onto the disk; once, even if the run is interrupted.

RUN/encoded/data.npy     the rows, mapped when read: indexing reads only the rows asked for
RUN/encoded/data.npz     written after it: digests, which rows could be read, and what it was made
                         of; the same command finds both and does not encode again
"""

import hashlib
import io
import math
import mmap
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..encoders import ImageEncoder
from ..errors import DataError
from ..files import whole_file, write_whole
from ..tables import ImageFolder, Table
from . import encoder_file
from .inspection import Encoder, SourceFile

HALF_ABOVE = 2**30
"""Bytes of float32 above which float16 is kept instead: features lie within a few units of 0."""
EncodingProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done, the number of rows so far and their total."""


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """inputs [rows, ...]; digests [rows]; readable [rows]; `release` frees rows in memory."""

    inputs: Tensor
    digests: npt.NDArray[np.uint64]
    readable: npt.NDArray[np.bool_]
    release: Callable[[], None]


def encode(
    source: SourceFile, encoder: Encoder, folder: Path, name: str, *, progress: EncodingProgress
) -> EncodedRows:
    """Encode `source` into `folder`, or take what lies there if it was made of the same."""
    rows, notes = folder / f"{name}.npy", folder / f"{name}.npz"
    made_of = _made_of(source, encoder)
    if not (known := _known(notes, made_of)):
        notes.unlink(missing_ok=True)
        known = _encode(
            source, encoder, rows, lambda n: progress(f"encoding {name}", n, len(source))
        )
        stream = io.BytesIO()
        np.savez(stream, made_of=np.array(made_of), **known)
        write_whole(notes, stream.getvalue())
    inputs, release = mapped(rows)
    return EncodedRows(inputs, known["digests"], known["readable"], release)


def _encode(
    source: SourceFile, encoder: Encoder, path: Path, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Write the rows; their digests, and which of them could be read."""
    count, shape = len(source), tuple(encoder.shape)
    half = 4 * count * math.prod(shape) > HALF_ABOVE
    images = isinstance(encoder, ImageEncoder)
    dtype = np.dtype("uint8" if images else "float16" if half else "float32")
    _check_room(path.parent, count * math.prod(shape) * dtype.itemsize)
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": (count, *shape)}
    digests, readable, done = [], [], 0
    with whole_file(path) as stream:  # gets its name at the very end
        np.lib.format.write_array_header_2_0(stream, header)
        for features, digest, sound in _pieces(source.files, encoder):
            stream.write(np.ascontiguousarray(features, dtype=dtype).data)
            digests.append(digest)
            readable.append(sound)
            done += len(features)
            progress(done)
        if done != count:
            raise DataError(
                f"{done:,} rows were read where {count:,} had been counted; "
                "did the file change meanwhile? run the command again"
            )
    return {"digests": np.concatenate(digests), "readable": np.concatenate(readable)}


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"encoding takes {size / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB free; "
            "make room, or give --out on another disk"
        )


def _pieces(files: Table | ImageFolder, encoder: Encoder) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(files, ImageFolder):
        assert isinstance(encoder, ImageEncoder), "images have an image encoder"
        for paths in files.pieces():
            images, sound = encoder.encode(paths)
            yield images, encoder.digests(images), np.array(sound)
        return
    assert not isinstance(encoder, ImageEncoder), "tables have an encoder of their own"
    unused = getattr(encoder, "unused", ())
    there = set(files.columns)
    names = [*encoder.needs, *(c.name for c in unused if c.name in there)]
    for piece in files.pieces(names):
        yield encoder.encode(piece), encoder.digests(piece), np.ones(piece.num_rows, dtype=bool)


def _known(notes: Path, made_of: str) -> dict[str, Any]:
    try:
        with np.load(notes, allow_pickle=False) as content:
            if str(content["made_of"]) == made_of:
                return {"digests": content["digests"], "readable": content["readable"]}
    except (OSError, ValueError, KeyError, EOFError):
        pass
    return {}


def _made_of(source: SourceFile, encoder: Encoder) -> str:
    digest = hashlib.sha256(encoder_file.fingerprint(encoder).encode())
    for path in source.files.read_from:
        try:
            status = path.stat()
            state = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
        except (OSError, RuntimeError):  # a link to nothing, or to itself: unreadable, and listed
            state = f"{path} unreadable"
        digest.update(f"{state}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def mapped(path: Path) -> tuple[Tensor, Callable[[], None]]:
    """The rows as a tensor over the file, and a function that frees the memory of rows that were read.

    Rows that were read stay in memory until the kernel wants it back, which it does late. Freeing
    them costs nothing but reading them again, mostly from the kernel's own cache.
    """
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    handle = getattr(array, "_mmap", None)

    def release() -> None:
        if handle is not None and hasattr(mmap, "MADV_DONTNEED"):
            handle.madvise(mmap.MADV_DONTNEED)

    return torch.from_numpy(array), release
