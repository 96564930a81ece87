"""Every row of a source through the pre-processing, onto disk; once, whatever is interrupted.

RUN/encoded/data.npy     the rows, mapped when read
RUN/encoded/data.npz     written after it: digests, which rows could be read, and of what it was
                         made; the same command finds both and does not encode again
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..encoders import ImageEncoder
from ..files import write_whole
from ..tables import ImageFolder, Table
from . import preprocessing
from .encoded_files import mapped, real_type, writing
from .inspection import Encoder, Source

Progress = Callable[[int], None]
"""Called with the number of rows just done."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """inputs [rows, ...]; digests [rows]; readable [rows]; `release` lets go of rows in memory."""

    inputs: Tensor
    digests: npt.NDArray[np.uint64]
    readable: npt.NDArray[np.bool_]
    release: Callable[[], None]


def encode(
    source: Source, encoder: Encoder, folder: Path, name: str, *, progress: Progress
) -> Encoded:
    """Encode `source` into `folder`, or take what lies there if it was made of the same."""
    rows, notes = folder / f"{name}.npy", folder / f"{name}.npz"
    made_of = _made_of(source, encoder)
    if not (known := _known(notes, made_of)):
        notes.unlink(missing_ok=True)
        digests, readable = [], []
        images = isinstance(encoder, ImageEncoder)
        dtype = "uint8" if images else real_type(len(source), encoder.shape)
        with writing(rows, rows=len(source), shape=encoder.shape, dtype=dtype) as write:
            for features, digest, sound in _pieces(source.files, encoder):
                write(features)
                digests.append(digest)
                readable.append(sound)
                progress(len(features))
        known = {"digests": np.concatenate(digests), "readable": np.concatenate(readable)}
        stream = io.BytesIO()
        np.savez(stream, made_of=np.array(made_of), **known)
        write_whole(notes, stream.getvalue())
    inputs, release = mapped(rows)
    return Encoded(inputs, known["digests"], known["readable"], release)


def _pieces(files: Table | ImageFolder, encoder: Encoder) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(files, ImageFolder):
        assert isinstance(encoder, ImageEncoder), "images have an image encoder"
        for paths in files.pieces():
            images, sound = encoder.encode(paths)
            yield images, encoder.digests(images), np.array(sound)
        return
    assert not isinstance(encoder, ImageEncoder), "tables have an encoder of their own"
    unused = getattr(encoder, "unused", ())
    names = [*encoder.needs, *(c.name for c in unused if c.name in files.columns)]
    for piece in files.pieces(names):
        yield encoder.encode(piece), encoder.digests(piece), np.ones(piece.num_rows, dtype=bool)


def _known(notes: Path, made_of: str) -> dict[str, Any]:
    try:
        with np.load(notes, allow_pickle=False) as found:
            if str(found["made_of"]) == made_of:
                return {"digests": found["digests"], "readable": found["readable"]}
    except (OSError, ValueError, KeyError, EOFError):
        pass
    return {}


def _made_of(source: Source, encoder: Encoder) -> str:
    digest = hashlib.sha256(preprocessing.fingerprint(encoder).encode())
    files = source.files
    names = (
        [files.path] if isinstance(files, Table) else [files.path / name for name in files.files]
    )
    for path in names:
        status = path.stat()
        digest.update(f"{path.resolve()} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
