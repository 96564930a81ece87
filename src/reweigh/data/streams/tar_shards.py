"""Tar shards, as WebDataset has them: consecutive files with one key are the fields of an example.

    000017.jpg  000017.cls        key 000017, fields jpg and cls: all after the first dot of the name

Values come as bytes. Only headers are read to find the examples; their places are kept in memory for
the last 64 shards.
"""

import tarfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from .row_arrays import Rows

PIECE = 256
_BLOCK = 512  # two empty ones are the end


def describe(path: Path) -> tuple[int, dict[str, str]]:
    """The number of examples, and their fields."""
    if not path.exists():
        raise DataError(f"there is no {path}; expected a .tar file")
    fields, places = _index(path)
    return len(places), dict.fromkeys(fields, "bytes")


def read(path: Path, first: int, last: int, fields: Sequence[str]) -> Iterator[Rows]:
    """Examples first ... last-1, some at a time."""
    known, places = _index(path)
    columns = [known.index(field) for field in fields]
    with path.open("rb") as stream:
        for start in range(first, last, PIECE):
            stop = min(start + PIECE, last)
            rows = {field: np.empty(stop - start, dtype=object) for field in fields}
            for row, example in enumerate(places[start:stop]):
                for field, column in zip(fields, columns, strict=True):
                    offset, size = example[column]
                    stream.seek(offset)
                    rows[field][row] = stream.read(size)
            yield rows


def _index(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); is it still there?") from error
    return _read_index(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _read_index(
    path: Path, size: int, modified: int
) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Field names, sorted, and (offset, size) of each: [n, fields, 2]."""
    fields: tuple[str, ...] = ()
    places: list[list[tuple[int, int]]] = []
    for key, spans in _examples(path):
        names = tuple(sorted(spans))
        if not places:
            fields = names
        elif names != fields:
            raise DataError(
                f"{path}: example {key} has {', '.join(names)}; expected {', '.join(fields)}, as "
                "the first one has"
            )
        places.append([spans[name] for name in names])
    return fields, np.array(places, dtype=np.int64).reshape(len(places), len(fields), 2)


def _examples(path: Path) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """The key of each example, and (offset, size) of each of its fields."""
    truncated = DataError(
        f"{path} is truncated, or no plain tar file; write it again, uncompressed"
    )
    before, spans, end = "", dict[str, tuple[int, int]](), 0
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                folder, _, name = member.name.rpartition("/")
                stem, _, field = name.partition(".")
                if not member.isfile() or not stem or not field:
                    continue
                key = f"{folder}/{stem}"
                if key != before and spans:
                    yield before.lstrip("/"), spans
                    spans = {}
                before = key
                spans[field.lower()] = (member.offset_data, member.size)
        with path.open("rb") as stream:
            stream.seek(end)
            if stream.read(2 * _BLOCK) != bytes(2 * _BLOCK):
                raise truncated  # the reader takes whatever it cannot read for the end
    except tarfile.TarError as error:
        raise truncated from error
    if spans:
        yield before.lstrip("/"), spans
