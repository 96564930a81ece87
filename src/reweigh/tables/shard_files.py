"""Which files are the shards of one table, and in which order.

    FOLDER/part-0.csv  part-1.csv ...                  names that differ in their numbers only
    FOLDER/data/train-00000-of-00002.parquet ...       as Hugging Face's data sets come: one folder further down
    'FOLDER/train-*.parquet'                           a pattern, in quotes: the files that match it

Shards are sorted by name, numbers by their value (part-2 before part-10). A row's index is its position in all
of them, one after the other. A folder with images at any depth is one of images, whatever else is in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from .endings import CSV, IMAGES, JSON_LINES, PARQUET

FORMS = (CSV, PARQUET, JSON_LINES)
_WILD = re.compile(r"[*?\[]")
_NUMBER = re.compile(r"(\d+)")
_COUNTED = re.compile(r"(?P<set>.*?)(?P<number>\d+)-of-(?P<count>\d+)(?P<rest>\D.*)")
LISTED = 4
"""Names in an error."""


def is_shards(path: Path) -> bool:
    """Whether this is a folder of shards, or a pattern that some files match."""
    return bool(_matches(path)) if _is_pattern(path) else bool(path.is_dir() and _homes(path))


def shard_files(path: Path) -> tuple[Path, ...]:
    """The shards in order; an error where they cannot be of one table, or one of them is missing."""
    if _is_pattern(path):
        files = _matches(path)
    else:
        homes = _homes(path)
        if len(homes) > 1:
            raise DataError(
                f"{path} has tables in {_some(homes)}; expected shards of one table: give one of these folders"
            )
        files = _tables_in(homes[0])
        kinds = sorted({_NUMBER.sub("*", file.name) for file in files})
        if len(kinds) > 1:
            raise DataError(
                f"{homes[0]} holds several tables: {', '.join(kinds[:LISTED])}; expected shards whose names differ "
                f"in their numbers only: give a file, or a pattern in quotes, as '{homes[0] / kinds[-1]}'"
            )
    forms = {next(form[0] for form in FORMS if _ends(file, form)) for file in files}
    if len(forms) > 1:
        raise DataError(
            f"{path} has {' and '.join(sorted(forms))} files; expected shards of one form"
        )
    _check_count(path, files)
    return tuple(files)


def _check_count(path: Path, files: list[Path]) -> None:
    """Names that say how many there are."""
    counted = [match for file in files if (match := _COUNTED.fullmatch(file.name))]
    if len(counted) != len(files):
        return
    counts = sorted({int(match["count"]) for match in counted})
    if len(counts) > 1:
        raise DataError(
            f"{path} has shards of a set of {counts[0]} and of a set of {counts[1]}; expected those of one: "
            "remove the others, or give a pattern in quotes"
        )
    lacking = set(range(counts[0])) - {int(match["number"]) for match in counted}
    if lacking:
        first = counted[0]
        name = f"{first['set']}{min(lacking):0{len(first['number'])}}-of-{first['count']}{first['rest']}"
        raise DataError(f"there is no {files[0].parent / name}; copy all {counts[0]} shards")


def _is_pattern(path: Path) -> bool:
    return bool(_WILD.search(path.name)) and not path.exists()


def _matches(path: Path) -> list[Path]:
    found = path.parent.glob(path.name) if path.parent.is_dir() else ()
    return _sorted([file for file in found if _is_shard(file)])


def _homes(path: Path) -> list[Path]:
    """The folder itself, or else those in it, that have tables; none of a folder of images."""
    if any(name.lower().endswith(IMAGES) for name in _names_below(path)):  # the first is enough
        return []
    if _tables_in(path):
        return [path]
    below = sorted(folder for folder in path.iterdir() if folder.is_dir() and _shown(folder))
    return [folder for folder in below if _tables_in(folder)]


def _names_below(folder: Path) -> Iterator[str]:
    for _, _, names in os.walk(folder):
        yield from names


def _tables_in(folder: Path) -> list[Path]:
    return _sorted([file for file in folder.iterdir() if _is_shard(file)])


def _is_shard(file: Path) -> bool:
    return _shown(file) and any(_ends(file, form) for form in FORMS) and file.is_file()


def _shown(path: Path) -> bool:
    """Other programs leave `_SUCCESS`, `_metadata` and hidden files beside theirs."""
    return not path.name.startswith((".", "_"))


def _ends(file: Path, form: tuple[str, ...]) -> bool:
    return file.name.lower().endswith(form)


def _sorted(files: list[Path]) -> list[Path]:
    def by_number(file: Path) -> list[tuple[int, str]]:
        parts = _NUMBER.split(file.name)
        return [(int(part), part) if part.isdigit() else (-1, part) for part in parts]

    return sorted(files, key=by_number)


def _some(paths: list[Path]) -> str:
    return ", ".join(str(path) for path in paths[:LISTED]) + (
        ", ..." if len(paths) > LISTED else ""
    )
