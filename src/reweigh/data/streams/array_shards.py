"""Array shards: one .npy file per field, one row per example, memory-mapped.

    part-00000.image.npy   part-00000.label.npy        the shard `part-00000`, fields image, label

A piece is copied and its mapping dropped, so pages that were read do not pile up in memory.
"""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from .row_arrays import Rows

SUFFIX = ".npy"
PIECE = 4096


def fields_of(path: Path) -> list[str]:
    """The fields that a shard has files for."""
    files = path.parent.glob(f"{glob.escape(path.name)}.*{SUFFIX}")
    names = (file.name[len(path.name) + 1 : -len(SUFFIX)] for file in files)
    return sorted(name for name in names if "." not in name)


def describe(path: Path) -> tuple[int, dict[str, str]]:
    """The number of rows, and the type and shape of each field's."""
    arrays = {field: _mapped(path, field) for field in fields_of(path)}
    if not arrays:
        raise DataError(f"there is no {path}.FIELD{SUFFIX}; expected a file a field")
    lengths = {field: len(array) for field, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{field} {n:,}" for field, n in lengths.items())
        raise DataError(
            f"the arrays of {path} differ in length ({told}); expected one row per example"
        )
    kinds = {name: f"{array.dtype}{list(array.shape[1:])}" for name, array in arrays.items()}
    return next(iter(lengths.values())), kinds


def read(path: Path, first: int, last: int, fields: Sequence[str]) -> Iterator[Rows]:
    """Rows first ... last-1, some at a time."""
    for start in range(first, last, PIECE):
        rows = slice(start, min(start + PIECE, last))
        yield {field: np.array(_mapped(path, field)[rows]) for field in fields}


def _mapped(path: Path, field: str) -> npt.NDArray[Any]:
    file = path.with_name(f"{path.name}.{field}{SUFFIX}")
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"there is no {file}; expected a file a field") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} is no array, or is truncated ({error}); write it again") from error
    if array.ndim == 0:
        raise DataError(f"{file} holds a single number; expected one row per example")
    return array
