"""Data in many files: a list of shards of one format, and the number of rows of each.

    shards = open_shards("train/part-{00000..00099}.parquet")
    shards = open_shards("train")                     # all shards of a folder, by name

    part-00000.parquet                                fields are columns       parquet_shards.py
    part-00000.tar                                    000017.jpg, 000017.cls   tar_shards.py
    part-00000.image.npy, part-00000.label.npy        memory-mapped arrays     array_shards.py

The id of an example is its row, counted through all shards in the order of the list. It is the same
whatever order, process or worker reads it.
"""

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError, unknown
from ...rng import Indices
from . import array_shards, parquet_shards, tar_shards
from .row_arrays import ID, Rows, row_count


class ShardFormat(NamedTuple):
    """How files with one of the `endings` are read."""

    endings: tuple[str, ...]
    describe: Callable[[Path], tuple[int, dict[str, str]]]
    read: Callable[[Path, int, int, Sequence[str]], Iterator[Rows]]


FORMATS = {
    "parquet": ShardFormat((".parquet", ".pq"), parquet_shards.describe, parquet_shards.read),
    "tar": ShardFormat((".tar",), tar_shards.describe, tar_shards.read),
    "npy": ShardFormat((array_shards.SUFFIX,), array_shards.describe, array_shards.read),
}


@dataclass(frozen=True)
class Shards:
    """`rows[k]` examples in the file (of arrays: the files) `paths[k]`."""

    format: str
    paths: tuple[Path, ...]
    rows: tuple[int, ...]
    fields: tuple[str, ...]

    def __len__(self) -> int:
        return sum(self.rows)

    @cached_property
    def starts(self) -> Indices:
        """The id of each shard's first example, and the number of all at the end."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    def read(self, shard: int, first: int, last: int, fields: Sequence[str]) -> Iterator[Rows]:
        """Rows first ... last-1 of one shard with their ids, some at a time."""
        at, end = (int(self.starts[shard]) + row for row in (first, last))
        for piece in FORMATS[self.format].read(self.paths[shard], first, last, fields):
            yield {ID: np.arange(at, at + row_count(piece)), **piece}
            at += row_count(piece)
        if at != end:
            raise DataError(
                f"{self.paths[shard]} has fewer rows than were counted ({self.rows[shard]:,}); "
                "did it change meanwhile? open the shards again"
            )

    def read_ids(self, first: int, last: int, fields: Sequence[str]) -> Iterator[Rows]:
        """The examples with ids first ... last-1 in their order, some at a time."""
        for shard, start in enumerate(self.starts[:-1]):
            low, high = max(first - start, 0), min(last - start, self.rows[shard])
            if low < high:
                yield from self.read(shard, int(low), int(high), fields)

    def where(self, example: int) -> str:
        """The file and the row of an id."""
        shard = int(np.searchsorted(self.starts, example, side="right")) - 1
        return f"{self.paths[shard]}, row {example - int(self.starts[shard])}"

    def require(self, *fields: str) -> None:
        """An error with the nearest name for a field that is not there."""
        for name in fields:
            if name not in self.fields:
                raise DataError(f"{self.paths[0]}: {unknown('field', name, self.fields)}")


def open_shards(source: str | Path | Sequence[str | Path]) -> Shards:
    """Find the shards of a folder, a pattern or a list, count their rows, and check that all are alike.

    A pattern has `*`, or numbers as in `part-{000..127}.tar`, of which none may be missing.
    """
    files = _files(source)
    endings = {ending: name for name, known in FORMATS.items() for ending in known.endings}
    formats = {next((endings[e] for e in endings if f.name.lower().endswith(e)), f.suffix) for f in files}  # fmt: skip
    if len(formats) > 1 or not formats <= FORMATS.keys():
        raise DataError(
            f"{source} has files of {', '.join(sorted(formats)) or 'no format'}; expected shards of "
            f"one format: {', '.join(endings)}"
        )
    (name,) = formats
    paths = list(dict.fromkeys(map(_stem, files))) if name == "npy" else files
    rows, first = [], dict[str, str]()
    for path in paths:
        number, kinds = FORMATS[name].describe(path)
        if not number:
            raise DataError(f"{path} is empty; expected examples: take it out of the list")
        first = first or kinds
        if kinds != first:
            raise DataError(f"{path} is unlike {paths[0]}: {_difference(first, kinds)}")
        rows.append(number)
    return Shards(name, tuple(paths), tuple(rows), tuple(first))


def _files(source: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(source, str | Path):
        files = [Path(path) for path in source]
    elif Path(source).is_dir():
        known = tuple(ending for one in FORMATS.values() for ending in one.endings)
        files = sorted(f for f in Path(source).iterdir() if f.name.lower().endswith(known))
    elif numbered := re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}(.*)", str(source)):
        head, low, high, tail = numbered.groups()
        files = [Path(f"{head}{k:0{len(low)}d}{tail}") for k in range(int(low), int(high) + 1)]
        if tail.endswith(array_shards.SUFFIX) and "*" in tail:
            files = [Path(f) for file in files for f in sorted(glob.glob(str(file))) or [str(file)]]
    elif "*" in str(source):
        files = sorted(map(Path, glob.glob(str(source))))
    else:
        files = [Path(source)]
    for path in files:
        if not path.exists():
            raise DataError(
                f"there is no {path}, one of {len(files)} shards; expected all: fetch or copy it"
            )
    if not files:
        raise DataError(f"there are no shards at {source}; expected .parquet, .tar or .npy files")
    return files


def _stem(path: Path) -> Path:
    """The shard that a field's file belongs to."""
    stem, dot, field = path.name[: -len(array_shards.SUFFIX)].rpartition(".")
    if not (stem and dot and field):
        raise DataError(f"{path} names no field; expected SHARD.FIELD.npy, as part-0.label.npy")
    return path.with_name(stem)


def _difference(expected: dict[str, str], kinds: dict[str, str]) -> str:
    if missing := [name for name in expected if name not in kinds]:
        return f"it has no field {missing[0]!r}; expected the same fields in all shards"
    if added := [name for name in kinds if name not in expected]:
        return f"it has a field {added[0]!r} more; expected the same fields in all shards"
    name = next(name for name in expected if expected[name] != kinds[name])
    return f"its {name!r} is {kinds[name]}; expected {expected[name]}, as in the first shard"
