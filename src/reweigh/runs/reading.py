"""Run folders, opened and checked: one check of the version, for every file that has one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import DataError, ReweighError
from ..files import write_whole
from ..optional import optional
from ..text import first_line
from .file_names import RunFile
from .json_values import Json, as_json, of_json
from .schema import (
    NEEDED_COLUMNS,
    SUSPECT_COLUMNS,
    VOICE_COLUMNS,
    RunSource,
    RunSummary,
    Suspect,
    Voice,
)

VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class TrainedRun:
    """The folder of a run of `reweigh train`, and what it was trained on."""

    path: Path
    source: RunSource

    @property
    def suspects(self) -> Path:
        """The suspicious rows, most suspicious first."""
        return self.path / RunFile.SUSPECTS

    @property
    def decisions(self) -> Path:
        """What people decided, in the order they did."""
        return self.path / RunFile.DECISIONS

    def summary(self) -> RunSummary:
        """The results of the run."""
        return read(self.path / RunFile.SUMMARY, RunSummary)

    def first_suspects(self, count: int) -> list[Suspect]:
        """The `count` most suspicious rows, or as many as there are."""
        with reading_parquet(self.suspects), open_suspects(self.suspects) as file:
            first = next(file.iter_batches(count, columns=list(SUSPECT_COLUMNS)), None)
        return [] if first is None else [Suspect(**row) for row in first.to_pylist()]

    def voices(self) -> dict[int, list[Voice]]:
        """By suspect, the strongest against it first; nothing in runs that kept none."""
        path, found = self.path / RunFile.VOICES, dict[int, list[Voice]]()
        if not path.exists():
            return found
        parquet = optional("pyarrow.parquet", package="pyarrow", needed_for="reading a run")
        with reading_parquet(path):
            table = parquet.read_table(path, columns=list(VOICE_COLUMNS))
        for row in table.to_pylist():
            found.setdefault(row["index"], []).append(Voice(**row))
        return {
            index: sorted(each, key=lambda voice: voice.product) for index, each in found.items()
        }


def open_run(folder: Path, *, needs: str = RunFile.SUSPECTS) -> TrainedRun:
    """The run in `folder`, once it has the file `needs`; an error says what it lacks."""
    path = folder / RunFile.SOURCE
    values = _values(path)
    if not (folder / needs).exists():
        raise DataError(
            f"{folder} is not finished: there is no {folder / needs}; finish the run with the same "
            "`reweigh train` as before"
        )
    return TrainedRun(folder, _decoded(path, RunSource, values, others=True))


def read(path: Path, kind: type[T], *, others: bool = True) -> T:
    """The content of a file that `write` wrote; `others`: pass over keys that are not known."""
    return _decoded(path, kind, _values(path), others=others)


def write(path: Path, value: Any) -> None:
    """Write a dataclass with the version of these files."""
    write_whole(path, json.dumps(versioned(value), indent=1, allow_nan=False) + "\n")


def versioned(value: Any) -> Json:
    """A dataclass as the content of a file; a number that is not finite becomes null."""
    finite = json.loads(json.dumps(as_json(value)), parse_constant=lambda name: None)
    return {"version": VERSION, **finite}


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Errors of reading the Parquet file `path` of a run, in words that help."""
    pyarrow = optional("pyarrow", package="pyarrow", needed_for="reading a run")
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"there is no {path}; train again") from error
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, ReweighError) or getattr(error, "errno", None):
            raise
        raise DataError(
            f"{path} is damaged: it is no parquet file ({first_line(error)[:160]}); train again"
        ) from None


def open_suspects(path: Path, **options: Any) -> Any:
    """A suspects.parquet as a pyarrow ParquetFile that has every column; `options` are for that."""
    parquet = optional("pyarrow.parquet", package="pyarrow", needed_for="reading a run")
    with reading_parquet(path):
        file = parquet.ParquetFile(path, **options)
    lacking = [name for name in NEEDED_COLUMNS if name not in file.schema_arrow.names]
    if lacking:
        raise DataError(f"{path} lacks {', '.join(lacking)}; train again")
    return file


def _values(path: Path) -> Json:
    """The JSON object in `path`, without its version, which must be ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"there is no {path}; expected a finished run folder of `reweigh train`"
        ) from None
    except NotADirectoryError:
        raise DataError(f"{path.parent} is a file; expected a run folder") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error}); train again") from None
    version = content.pop("version", None) if isinstance(content, dict) else None
    if version != VERSION:
        raise DataError(
            f"{path} has version {version!r}; expected {VERSION}: use the reweigh that wrote it, or "
            "train again"
        )
    values: Json = content
    return values


def _decoded(path: Path, kind: type[T], values: Json, *, others: bool) -> T:
    try:
        return of_json(kind, values, others=others)
    except (TypeError, ValueError) as error:
        if isinstance(error, ReweighError):
            raise
        raise DataError(f"{path} is damaged ({error}); train again") from error
