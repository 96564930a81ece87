"""The suspicious rows: `suspects.parquet`, those first whose labels are surest to be wrong.

What filters need (row, labels, suspicion) is held in memory: a few bytes per row. Examples are read when
they are looked at, or one after the other to search them: at most one row group at a time, and only
one page of a group that was written in small pages.
"""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs import SUSPECT_COLUMNS, Suspect, open_suspects
from ..tables import arrow

BATCH = 32
NEEDED = ("index", "given_label", "suggested_label", "suspicion")
NEWER = {"p_wrong": "float64", "suggested": "string", "p_suggested": "float64", "flag": "bool_",
         "source": "string"}  # fmt: skip
"""Columns that runs of earlier versions do not have."""
NONE = -1  # the code of a missing label
_PLAIN = re.compile(r"[ !#-.0-\[\]-~]*")  # what JSON never spells in another way

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LabelColumn:
    """A column of labels as numbers: `names[codes[i]]`, NONE where there is none."""

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    def equal(self, name: str) -> Flags:
        """Where the label is `name`."""
        code = self.names.index(name) if name in self.names else len(self.names)
        return np.asarray(self.codes == code)

    def where(self, chosen: list[bool]) -> Flags:
        """Where the label is one of the names marked in `chosen`."""
        return np.asarray([*chosen, False], dtype=bool)[self.codes]

    def counts(self) -> dict[str, int]:
        """How often every label occurs, most first."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names)).tolist()
        order = sorted(range(len(self.names)), key=lambda code: (-counts[code], self.names[code]))
        return {self.names[code]: counts[code] for code in order}

    def name(self, position: int) -> str | None:
        """The label at a position."""
        code = self.codes[position]
        return None if code == NONE else self.names[code]


class Suspects:
    """The opened file. A position is a place in its order, an index is a row of the data."""

    def __init__(self, path: Path) -> None:
        # Two, since a decoder must not be used from two threads, and looking must not wait for a
        # search. Not read ahead, so that a group is not read before it is asked for.
        self._cards, self._scans = (
            open_suspects(path, pre_buffer=False, buffer_size=1 << 20) for _ in range(2)
        )
        names = set(self._cards.schema_arrow.names)
        small = self._cards.read(columns=[*NEEDED, *(each for each in NEWER if each in names)])
        for name, kind in NEWER.items():
            if name not in names:
                small = small.append_column(
                    name, arrow().nulls(small.num_rows, getattr(arrow(), kind)())
                )
        self._places = _order(small)
        small = small.take(self._places)
        self._back = np.argsort(self._places)
        self.index: npt.NDArray[np.int64] = small["index"].to_numpy().astype(np.int64)
        self.suspicion = small["suspicion"].to_numpy().astype(np.float64)
        self.p_wrong, self.p_suggested = (
            small[name].to_numpy().astype(np.float64) for name in ("p_wrong", "p_suggested")
        )
        best = arrow("compute").coalesce(small["suggested"], small["suggested_label"])
        self.given, self.suggested = _labels(small["given_label"]), _labels(best)
        self.source = _labels(small["source"])
        flags = small["flag"].to_pylist()
        self.flagged: Flags | None = None
        """Which are flagged; None in a run without flags."""
        if any(flag is not None for flag in flags):
            self.flagged = np.array([bool(flag) for flag in flags])
        counts = [
            self._cards.metadata.row_group(g).num_rows for g in range(self._cards.num_row_groups)
        ]
        self._ends = np.cumsum(counts)
        self._positions = {int(index): position for position, index in enumerate(self.index)}
        self._reading, self._scanning = threading.Lock(), threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    def position(self, index: int) -> int | None:
        """Where a row of the data stands; None if it is no suspect."""
        return self._positions.get(index)

    def at(self, position: int) -> Suspect:
        """The suspect at a position, with its example."""
        in_file = int(self._places[position])
        group = int(np.searchsorted(self._ends, in_file, side="right"))
        start = int(self._ends[group - 1]) if group else 0
        batch, place = divmod(in_file - start, BATCH)
        with self._reading:
            batches = self._cards.iter_batches(
                batch_size=BATCH,
                row_groups=[group],
                columns=list(SUSPECT_COLUMNS),
                use_threads=False,
            )
            for _ in range(batch):
                next(batches)
            row = next(batches).slice(place, 1).to_pylist()[0]
        row["given_label"], row["why"], row["example"] = (
            row[name] or "" for name in ("given_label", "why", "example")
        )
        return Suspect(**row)

    def containing(self, text: str, *, cells: bool) -> Flags:
        """Where `text` is in a label or the example, or is the row's number; case is ignored.

        `cells` says that examples are JSON objects, of which only the values are searched.
        """
        wanted = text.casefold()
        flags: Flags = np.zeros(len(self), dtype=bool)
        if text.isdecimal():
            flags |= self.index == int(text[:18])
        for labels in (self.given, self.suggested):
            flags |= labels.where([wanted in name.casefold() for name in labels.names])
        for position, example in self.examples():
            if not flags[position]:
                flags[position] = wanted in _searched(example, wanted, cells=cells)
        return flags

    def examples(self) -> Iterator[tuple[int, str]]:
        """Every example with its position, in the order of the file."""
        positions = iter(self._back.tolist())
        with self._scanning:
            for batch in self._scans.iter_batches(
                batch_size=BATCH, columns=["example"], use_threads=False
            ):
                for example in batch.column(0).to_pylist():
                    yield next(positions), example or ""


def _order(small: Any) -> npt.NDArray[np.int64]:
    """Places in the file, the surest to be wrong first; where that is unknown, as they are."""
    wrong = small["p_wrong"].to_numpy().astype(np.float64)
    return np.argsort(-np.nan_to_num(wrong, nan=-1.0), kind="stable")


def _searched(example: str, wanted: str, *, cells: bool) -> str:
    """The text to look in; parsing JSON is slow, and needless where the bare text rules it out."""
    folded = example.casefold()
    if not cells:
        return folded
    if _PLAIN.fullmatch(wanted) and wanted not in folded:
        return ""
    values = json.loads(example).values()
    return "\n".join(str(value) for value in values).casefold()


def _labels(column: Any) -> LabelColumn:
    pa = arrow()
    merged = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(merged, pa.ChunkedArray):
        merged = merged.unify_dictionaries().combine_chunks()
    codes = merged.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int32)
    return LabelColumn(tuple(merged.dictionary.to_pylist()), codes)
