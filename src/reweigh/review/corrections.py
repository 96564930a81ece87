"""The data with a review's decisions carried out: delimited text, Arrow, or a listing of images.

Each function checks before it changes: the number of rows, and the label of every row it touches, must
be those of the run. A decision carried out on another row than the one a person looked at would be
worse than none.
"""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np

from ..errors import DataError
from ..runs import RunSource
from ..tables import ArrowRows, Piece, arrow, delimiter_of, list_images, open_table, with_points
from .delimited import as_text, column_of, reading, records, with_cells


@dataclass(frozen=True)
class Corrections:
    """New labels and dropped rows, by index; `given` are the labels the decided rows should have now.

    `safe` makes a cell of a .csv harmless to spreadsheets, or leaves it.
    """

    given: Mapping[int, str]
    labels: Mapping[int, str]
    dropped: frozenset[int]
    safe: Callable[[str], str]

    @property
    def changed(self) -> list[int]:
        """The rows to which something happens."""
        return [index for index in self.given if index in self.labels or index in self.dropped]

    def check(self, index: int, label: str) -> None:
        """That the row is the one that was looked at, as far as its label tells."""
        if not _same(label, self.given[index]):
            raise DataError(
                f"row {index} of the data has the label {label!r}, but had {self.given[index]!r} when "
                "the run was trained; the data have changed since: train again"
            )


@dataclass
class Corrected:
    """How many cells were made safe, and the labels of decided rows as the data spell them."""

    guarded: int = 0
    labels: dict[int, str] = field(default_factory=dict)


def correct_delimited(
    source: RunSource, corrections: Corrections, out: IO[bytes], *, header: bool = True
) -> Corrected:
    """Write the corrected text file to `out`, with its header or without."""
    delimiter = source.delimiter
    if delimiter is None:
        with reading(source.data, source.encoding) as stream:
            delimiter = delimiter_of(stream.readline())
    column, width, rows, met = 0, 0, 0, Corrected()
    with reading(source.data, source.encoding) as stream, as_text(out, source.encoding) as written:
        for record, cells in records(stream, delimiter):
            changes: dict[int, str] = {}
            if _is_blank(cells, width):
                pass
            elif not width:
                column, width = column_of(cells, source.target), len(cells)
                if not header:
                    continue
            else:
                index, rows = rows, rows + 1
                if index in corrections.given:
                    met.labels[index] = _label(cells, column, source)
                    corrections.check(index, met.labels[index])
                if index in corrections.dropped:
                    continue
                if index in corrections.labels:
                    changes[column] = cells[column] = _written(corrections.labels[index], source)
            for place, cell in enumerate(cells):
                if (safe := corrections.safe(cell)) != cell:
                    changes[place] = safe
                    met.guarded += 1
            written.write(with_cells(record, changes, delimiter=delimiter, count=len(cells)))
    check_rows(source, rows)
    return met


def correct_parquet(source: RunSource, corrections: Corrections, out: IO[bytes]) -> Corrected:
    """Write the corrected parquet file to `out`, in the same schema; no cell of it can run."""
    with arrow("parquet").ParquetFile(source.data) as file:
        batches = file.iter_batches(batch_size=16_384)
        return correct_batches(source, corrections, out, file.schema_arrow, batches)


def correct_arrow_folder(source: RunSource, corrections: Corrections, out: IO[bytes]) -> Corrected:
    """Write the rows of a Hugging Face folder as one Parquet file, with the same features."""
    rows = open_table(source.data).rows
    assert isinstance(rows, ArrowRows), "chosen by what the data are"
    names = rows.classes.get(source.target, ())
    return correct_batches(source, corrections, out, rows.schema(), rows.batches(), names)


def correct_batches(
    source: RunSource,
    corrections: Corrections,
    out: IO[bytes],
    schema: Any,
    batches: Iterable[Piece],
    names: Sequence[str] = (),
) -> Corrected:
    """Write record batches as one Parquet file; `names`: of the classes, where the target has their numbers."""
    rows, met = 0, Corrected()
    column = column_of(schema.names, source.target)
    if names:
        codes = {index: str(names.index(new)) for index, new in corrections.labels.items()}
        coded = replace(corrections, labels=codes)
    else:
        coded = corrections
    with arrow("parquet").ParquetWriter(out, schema) as writer:
        for batch in batches:
            for index in range(rows, rows + len(batch)):
                if index in corrections.given:
                    label = batch.column(column)[index - rows].as_py()
                    met.labels[index] = str(names[label] if names else label)
                    corrections.check(index, met.labels[index])
            writer.write_batch(_corrected(batch, column, rows, coded))
            rows += len(batch)
    check_rows(source, rows)
    return met


def correct_listing(
    source: RunSource, corrections: Corrections, out: IO[bytes], *, paths: Mapping[str, int]
) -> Corrected:
    """Write path,label of every image in the class folders to `out`; `paths` are the changed ones."""
    met = Corrected()
    with as_text(out, "utf-8") as written:
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(("path", "label"))
        for path in list_images(source.data):
            folder, inside, _ = path.partition("/")
            if not inside:  # an image beside the folders of the classes
                continue
            index = paths.get(path)
            if index is not None and index in corrections.dropped:
                continue
            label = folder if index is None else corrections.labels.get(index, folder)
            cells = [corrections.safe(cell) for cell in (path, label)]
            met.guarded += sum(a != b for a, b in zip(cells, (path, label), strict=True))
            writer.writerow(cells)
    return met


def _corrected(batch: Piece, column: int, start: int, corrections: Corrections) -> Piece:
    """A batch of a parquet file that begins at row `start`, corrected."""
    pa, compute = arrow(), arrow("compute")
    rows = range(start, start + len(batch))
    labels = [corrections.labels[index] for index in rows if index in corrections.labels]
    kept = np.array([index not in corrections.dropped for index in rows])
    if not labels:
        return batch if kept.all() else batch.filter(pa.array(kept))
    field = batch.schema.field(column)
    plain = getattr(field.type, "value_type", field.type)  # of a dictionary, what its words are
    try:
        values = compute.replace_with_mask(
            batch.column(column).cast(plain),
            pa.array([index in corrections.labels for index in rows]),
            pa.array(labels, pa.string()).cast(plain),
        ).cast(field.type)
    except pa.ArrowInvalid as error:
        raise DataError(f"a new label does not fit the column {field.name!r}: {error}") from None
    return batch.set_column(column, field, values).filter(pa.array(kept))


def _label(cells: list[str], column: int, source: RunSource) -> str:
    """The label of a record; a decimal comma as a point."""
    label = cells[column].strip() if column < len(cells) else ""
    if source.target not in source.commas:
        return label
    return str(with_points(arrow().array([label]))[0].as_py())


def _written(label: str, source: RunSource) -> str:
    """A label as the file writes it: with a comma where its numbers have one."""
    return label.replace(".", ",") if source.target in source.commas else label


def _is_blank(cells: list[str], width: int) -> bool:
    """Whether a record is a line with nothing on it, which readers of tables pass over."""
    return not cells or (len(cells) == 1 and width != 1 and not cells[0].strip())


def check_rows(source: RunSource, rows: int) -> None:
    """That the data have as many rows as when the run was trained."""
    if rows != source.rows:
        raise DataError(
            f"{source.data} has {rows:,} rows, but had {source.rows:,} when the run was trained; "
            "the data have changed since: train again"
        )


def _same(label: str, given: str) -> bool:
    """Whether two spellings are one label: spaces around, 1 and 1.0, True and true, rounded numbers."""
    label, given = label.strip(), given.strip()
    if label.casefold() == given.casefold():
        return True
    try:
        return math.isclose(float(label), float(given), rel_tol=1e-4, abs_tol=1e-6)
    except ValueError:
        return False
