"""Encoded rows on disk: plain .npy, written in one pass, mapped when read, whole or not there.

with writing(path, rows=5_000_000, shape=(97,), dtype="float16") as write:
    for piece in ...: write(piece)
inputs = mapped(path)                       # a tensor; indexing reads only the rows asked for
"""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import DataError
from ..files import whole

HALF_ABOVE = 2**30
"""Bytes of float32 above which float16 is kept instead: features lie within a few units of 0."""


def real_type(rows: int, shape: tuple[int, ...]) -> str:
    """float32 where that is small, else float16."""
    return "float16" if 4 * rows * int(np.prod(shape)) > HALF_ABOVE else "float32"


@contextmanager
def writing(
    path: Path, *, rows: int, shape: tuple[int, ...], dtype: str
) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
    """Append pieces [k, *shape] until there are `rows`; the file gets its name at the very end."""
    size = rows * int(np.prod(shape)) * np.dtype(dtype).itemsize
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise DataError(
            f"encoding takes {size / 1e9:.1f} GB and {path.parent} has {free / 1e9:.1f} GB free; "
            "make room, or give --out on another disk"
        )
    done = 0
    with whole(path) as stream:
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
            "fortran_order": False,
            "shape": (rows, *shape),
        }
        np.lib.format.write_array_header_2_0(stream, header)

        def write(piece: npt.NDArray[Any]) -> None:
            nonlocal done
            done += len(piece)
            stream.write(np.ascontiguousarray(piece, dtype=dtype).data)

        yield write
        if done != rows:
            raise DataError(
                f"{done:,} rows were read where {rows:,} had been counted; "
                "did the file change meanwhile? run the command again"
            )


def mapped(path: Path) -> tuple[Tensor, Callable[[], None]]:
    """The rows as a tensor over the file, and a function that lets go of what was read of it.

    Rows that were read stay in memory until the kernel wants it back, which it does late. Letting
    go costs nothing but reading them again, mostly from the kernel's own cache.
    """
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    handle = getattr(array, "_mmap", None)

    def release() -> None:
        if handle is not None and hasattr(mmap, "MADV_DONTNEED"):
            handle.madvise(mmap.MADV_DONTNEED)

    return torch.from_numpy(array), release
