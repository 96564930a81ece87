"""A data set of Hugging Face: a folder that `datasets.load_from_disk` opens, written by pyarrow alone.

    data-00000-of-00001.arrow    the rows, most suspicious first, as a stream of Arrow
    dataset_info.json            the types of the columns (`Features`)
    state.json                   which files belong to it

Columns: those of the data (`image` for images, `text` for texts), the given label under the name of the
target (`label` for images), then index, suggested, p_wrong, p_suggested and flag. Where the data have a
column of such a name, ours begins with `reweigh_`. Classes are a `ClassLabel` with the names of the run.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..files import whole_folder
from ..runs import RunSource
from ..tables import Piece, arrow, words
from .ranked_rows import RankedRow, ranked_rows
from .row_content import RowContent

ROWS = "data-00000-of-00001.arrow"
_PLAIN = ("string", "large_string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "float", "double")  # fmt: skip
_NAMES = {"float": "float32", "double": "float64"}  # where Hugging Face has another one

Feature = dict[str, Any]


def write_dataset(source: RunSource, pieces: Iterable[Piece], out: Path) -> int:
    """Write the folder `out`; the number of rows."""
    pa, rows, writer = arrow(), 0, None
    with whole_folder(out) as folder:
        with (folder / ROWS).open("wb") as stream:
            for table, features in _tables(source, pieces):
                if writer is None:
                    described = {"info": {"features": features}}
                    schema = table.schema.with_metadata({"huggingface": json.dumps(described)})
                    writer = pa.ipc.new_stream(stream, schema)
                    information = {"citation": "", "description": "", "features": features,
                                   "homepage": "", "license": ""}  # fmt: skip
                    _write(folder / "dataset_info.json", information)
                writer.write_table(table.cast(schema))
                rows += table.num_rows
            assert writer is not None, "a run has ranked rows"
            writer.close()
        fingerprint = _digest(folder / ROWS)
        state: Feature = {"_data_files": [{"filename": ROWS}], "_fingerprint": fingerprint,
                 "_format_columns": None, "_format_kwargs": {}, "_format_type": None,
                 "_output_all_columns": False, "_split": "train"}  # fmt: skip
        _write(folder / "state.json", state)
    return rows


def _tables(
    source: RunSource, pieces: Iterable[Piece]
) -> Iterator[tuple[Piece, dict[str, Feature]]]:
    """Tables of the same columns, and what these are."""
    content = RowContent(source, files=True)
    for piece in pieces:
        ranked = list(ranked_rows(piece))
        given = [row.given for row in ranked]
        rows = content.at(piece.column("index").to_numpy(), given)
        columns = dict(_content(source, rows))
        for name, column in _ranking(source, ranked).items():
            free = name if name not in columns else f"reweigh_{name}"
            columns[free] = column
        table = arrow().table({name: array for name, (array, _) in columns.items()})
        yield table, {name: feature for name, (_, feature) in columns.items()}


def _content(source: RunSource, rows: Piece) -> Iterator[tuple[str, tuple[Any, Feature]]]:
    pa = arrow()
    if source.kind == "images":
        paths = [str((source.data / path).absolute()) for path in rows.column("path").to_pylist()]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        images = [{"bytes": None, "path": path} for path in paths]
        yield "image", (pa.array(images, kind), {"_type": "Image"})
        return
    for name in rows.schema.names:
        column = rows.column(name)
        if str(column.type) not in _PLAIN:  # dates, categories, lists: as the words a CSV has
            column = words(column.combine_chunks())
        yield name, (column, _value(column.type))


def _ranking(source: RunSource, ranked: list[RankedRow]) -> dict[str, tuple[Any, Feature]]:
    """The given label and what is said of it."""
    pa = arrow()
    place: dict[str | None, int | None] = {name: k for k, name in enumerate(source.classes)}
    label: Feature = {"names": list(source.classes), "_type": "ClassLabel"}

    def labels(names: list[str | None]) -> tuple[Any, Feature]:
        if source.task == "classes":
            return pa.array([place.get(name) for name in names], pa.int64()), label
        numbers = [None if name is None else float(name) for name in names]
        return pa.array(numbers, pa.float64()), _value(pa.float64())

    def values(items: list[Any], kind: Any) -> tuple[Any, Feature]:
        return pa.array(items, kind), _value(kind)

    target = "label" if source.kind == "images" else source.target
    return {
        target: labels([row.given for row in ranked]),
        "index": values([row.index for row in ranked], pa.int64()),
        "suggested": labels([row.suggested for row in ranked]),
        "p_wrong": values([row.wrong for row in ranked], pa.float64()),
        "p_suggested": values([row.p_suggested for row in ranked], pa.float64()),
        "flag": values([row.flagged for row in ranked], pa.bool_()),
    }


def _value(kind: Any) -> Feature:
    return {"dtype": _NAMES.get(str(kind), str(kind)), "_type": "Value"}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
