"""The data with a review's decisions carried out: delimited text, parquet, or a listing of images.

Each checks before it changes: the number of rows, and the label found at every row it touches, must be
those of the run. A decision carried out on another row than the one a person looked at would be worse
than none.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .delimited import AS_BYTES, column_of, delimiter_of, reading, records, with_cells
from .run import Run

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif", ".tiff",
          ".webp")  # fmt: skip


@dataclass(frozen=True)
class Corrections:
    """New labels and dropped rows, by index; `given` are the labels such rows should have now.

    `safe` makes a cell of a .csv harmless to spreadsheets, or leaves it.
    """

    given: Mapping[int, str]
    labels: Mapping[int, str]
    dropped: frozenset[int]
    safe: Callable[[str], str]

    def touches(self, index: int) -> bool:
        """Whether anything happens to the row."""
        return index in self.labels or index in self.dropped

    def check(self, index: int, found: object) -> None:
        """That the row is the one that was looked at, as far as its label tells."""
        if not _same(str(found), self.given[index]):
            raise DataError(
                f"row {index} of the data has the label {found!r}, but had {self.given[index]!r} when "
                "the run was trained; the data have changed since: train and audit again"
            )


def correct_delimited(run: Run, corrections: Corrections, out: Path) -> int:
    """Write the corrected text file to `out`; how many cells were made safe."""
    with reading(run.data) as stream:
        delimiter = delimiter_of(stream.readline(), [*run.columns, run.target])
    column, width, rows, guarded = 0, 0, 0, 0
    with reading(run.data) as stream, out.open("w", **AS_BYTES) as written:  # type: ignore[call-overload]
        for record, cells in records(stream, delimiter):
            changes: dict[int, str] = {}
            if _is_blank(cells, width):
                pass
            elif not width:
                column, width = column_of(cells, run.target), len(cells)
            else:
                index, rows = rows, rows + 1
                if corrections.touches(index):
                    corrections.check(index, cells[column] if column < len(cells) else "")
                    if index in corrections.dropped:
                        continue
                    changes[column] = cells[column] = corrections.labels[index]
            for place, cell in enumerate(cells):
                if (safe := corrections.safe(cell)) != cell:
                    changes[place] = safe
                    guarded += 1
            if changes:
                record = with_cells(record, changes, delimiter=delimiter, count=len(cells))  # noqa: PLW2901
            written.write(record)
    _check_rows(run, rows)
    return guarded


def correct_parquet(run: Run, corrections: Corrections, out: Path) -> int:
    """Write the corrected parquet file to `out`, in the same schema; no cell of it can run."""
    import pyarrow.parquet

    rows = 0
    with pyarrow.parquet.ParquetFile(run.data) as file:
        column = column_of(file.schema_arrow.names, run.target)
        with pyarrow.parquet.ParquetWriter(out, file.schema_arrow) as writer:
            for batch in file.iter_batches(batch_size=16_384):
                writer.write_batch(_corrected(batch, column, rows, corrections))
                rows += len(batch)
    _check_rows(run, rows)
    return 0


def correct_listing(
    run: Run, corrections: Corrections, out: Path, *, paths: Mapping[str, int]
) -> int:
    """Write path,label of every image in the class folders to `out`; `paths` are the touched ones."""
    guarded = 0
    with out.open("w", encoding="utf-8", errors="surrogateescape", newline="") as written:
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(("path", "label"))
        for path, folder in _images(run):
            index = paths.get(path)
            if index is not None and index in corrections.dropped:
                continue
            label = folder if index is None else corrections.labels.get(index, folder)
            cells = [corrections.safe(cell) for cell in (path, label)]
            guarded += sum(a != b for a, b in zip(cells, (path, label), strict=True))
            writer.writerow(cells)
    return guarded


def _corrected(batch: Any, column: int, start: int, corrections: Corrections) -> Any:
    """A batch of a parquet file that begins at row `start`, corrected."""
    import pyarrow
    from pyarrow import compute

    rows = range(start, start + len(batch))
    touched = [index for index in rows if corrections.touches(index)]
    if not touched:
        return batch
    for index in touched:
        corrections.check(index, batch.column(column)[index - start].as_py())
    field = batch.schema.field(column)
    labels = [corrections.labels[index] for index in touched if index in corrections.labels]
    plain = getattr(field.type, "value_type", field.type)  # of a dictionary, what its words are
    try:
        values = compute.replace_with_mask(
            batch.column(column).cast(plain),
            pyarrow.array([index in corrections.labels for index in rows]),
            pyarrow.array(labels, pyarrow.string()).cast(plain),
        ).cast(field.type)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"a new label does not fit the column {field.name!r}: {error}") from None
    kept = np.array([index not in corrections.dropped for index in rows])
    return batch.set_column(column, field, values).filter(pyarrow.array(kept))


def _images(run: Run) -> Iterator[tuple[str, str]]:
    """Path, relative to the data folder, and class folder of every image, in the order of paths."""
    for name in sorted(run.classes):
        for folder, folders, files in os.walk(run.data / name):
            folders.sort()
            for file in sorted(files):
                if file.lower().endswith(IMAGES):
                    yield (Path(folder) / file).relative_to(run.data).as_posix(), name


def _is_blank(cells: list[str], width: int) -> bool:
    """Whether a record is a line with nothing on it, which readers of tables pass over."""
    return not cells or (len(cells) == 1 and width != 1 and not cells[0].strip())


def _check_rows(run: Run, rows: int) -> None:
    if rows != run.rows:
        raise DataError(
            f"{run.data} has {rows:,} rows, but had {run.rows:,} when the run was trained; "
            "the data have changed since: train and audit again"
        )


def _same(found: str, given: str) -> bool:
    """Whether two spellings are one label: spaces around, 1 and 1.0, True and true."""
    found, given = found.strip(), given.strip()
    if found.casefold() == given.casefold():
        return True
    try:
        return float(found) == float(given)
    except ValueError:
        return False
