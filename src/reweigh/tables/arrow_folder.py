"""A folder that `datasets.save_to_disk` wrote (Hugging Face), read as a table.

    FOLDER/state.json                     names the Arrow files, in order
    FOLDER/dataset_info.json              the features: of a ClassLabel, the names of its classes
    FOLDER/data-00000-of-00002.arrow      record batches, as a stream

Needs pyarrow alone. A column of class numbers is read as the names of the classes; -1 is a missing label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..text import first_line
from .cells import arrow

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
PIECE_ROWS = 16_384


@dataclass(frozen=True)
class ArrowRows:
    """The rows of some Arrow files; `classes` are the names of the classes, by column."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]

    def pieces(self, columns: list[str]) -> Iterator[Any]:
        """The rows in order, as pyarrow record batches."""
        pa = arrow()
        for batch in self.batches():
            for start in range(0, batch.num_rows, PIECE_ROWS):
                few = batch.slice(start, PIECE_ROWS)
                arrays = [self._named(name, few.column(self.place(name))) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=columns)

    def batches(self) -> Iterator[Any]:
        """The record batches as they are in the files."""
        pa = arrow()
        for path in self.files:
            try:
                with _opened(path) as reader:
                    yield from _batches(reader)
            except (pa.ArrowInvalid, OSError) as error:
                raise _damaged(path, error) from error

    def schema(self) -> Any:
        """The types of the columns, and what Hugging Face notes about them."""
        with _opened(self.files[0]) as reader:
            return reader.schema

    def place(self, name: str) -> int:
        """Where a column is."""
        return self.columns.index(name)

    def _named(self, name: str, column: Any) -> Any:
        if name not in self.classes:
            return column
        pa, names = arrow(), self.classes[name]
        codes = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        known = (codes >= 0) & (codes < len(names))
        indices = pa.array(np.where(known, codes, 0), mask=~known)
        return pa.array(names, pa.string()).take(indices)


def is_arrow_folder(path: Path) -> bool:
    """Whether a folder is one of these, or holds several (a set of splits)."""
    return (path / STATE).is_file() or (path / SPLITS).is_file()


def open_arrow_folder(path: Path, *, encoding: str) -> ArrowRows:
    """Find the files and the columns."""
    if not (path / STATE).is_file():
        splits = _json(path / SPLITS).get("splits") or ["train"]
        raise DataError(
            f"{path} holds several data sets: {', '.join(map(str, splits))}; give the folder of one, "
            f"for example {path / str(splits[0])}"
        )
    state = _json(path / STATE)
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DataError(
            f"{path} keeps a selection of its rows apart; save it again after .flatten_indices()"
        )
    try:
        files = tuple(path / Path(entry["filename"]).name for entry in state["_data_files"])
    except (KeyError, TypeError):
        raise DataError(f"{path / STATE} names no files; save the data set again") from None
    if not files:
        raise DataError(f"{path} has no rows")
    with _opened(files[0]) as reader:
        columns = tuple(reader.schema.names)
    return ArrowRows(files, columns, _classes(path / INFO, columns))


def _classes(path: Path, columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    features = (_json(path) if path.is_file() else {}).get("features") or {}
    return {
        name: tuple(map(str, features[name]["names"]))
        for name in columns
        if isinstance(features.get(name), dict) and features[name].get("names")
    }


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({first_line(error)[:160]})") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: it is no JSON object; save the data set again")
    return content


def _opened(path: Path) -> Any:
    """A reader of record batches, from a stream or from a file with a table of contents."""
    pa, ipc = arrow(), arrow("ipc")
    try:
        source = pa.OSFile(str(path))
        try:
            return ipc.open_stream(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return ipc.open_file(source)
    except FileNotFoundError:
        raise DataError(f"there is no {path}; copy the whole folder of the data set") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    why = first_line(error)[:160]
    return DataError(f"{path} is no Arrow file, or is truncated ({why}); save it again")


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(k) for k in range(reader.num_record_batches))
    else:
        yield from reader
