"""The forms in which a ranking is written: `reweigh audit RUN --format NAME --out PLACE`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..errors import SettingError, unknown
from ..runs import RunSource
from ..tables import Piece, arrow
from .cleanlab import write_issues
from .fiftyone import write_samples
from .huggingface import write_dataset
from .label_studio import interface_file, write_tasks
from .row_content import PATH, TEXT, RowContent
from .row_files import ENDINGS, write_rows

Writer: TypeAlias = Callable[[RunSource, Iterable[Piece], Path], int]
"""Writes the pieces of audit.parquet, which can be read more than once, to a place; the number of rows."""


@dataclass(frozen=True)
class Format:
    """A form: the endings of its file, none for a folder; the files it writes beside `out`."""

    name: str
    endings: tuple[str, ...]
    write: Writer
    beside: Callable[[Path], tuple[Path, ...]] = lambda out: ()

    @property
    def is_folder(self) -> bool:
        """Whether it is written into a folder of its own."""
        return not self.endings


def write_list(source: RunSource, pieces: Iterable[Piece], out: Path) -> int:
    """The ranking as it is, with the text or the path of the image in the last column.

    Rows of a table have neither, and stay as they are.
    """
    shown = _with_content(source, pieces) if source.kind in ("text", "images") else pieces
    return write_rows(out, (listed(piece, source) for piece in shown))


LISTED = {"p_wrong": "probability_wrong", "p_suggested": "probability_suggested", "flag": "flagged"}
"""The names of some columns in the list that people read."""


def listed(piece: Piece, source: RunSource) -> Piece:
    """Rows of audit.parquet as a list has them; of data in several files, with the file and the row in it."""
    pa = arrow()
    table = piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
    names = [name for name in table.column_names if name != "flagged_from"]
    table = table.select(names).rename_columns([LISTED.get(name, name) for name in names])
    if not source.shards:
        return table
    ends = np.cumsum(list(source.shards.values()))
    index = table.column("index").to_numpy()
    shard = np.searchsorted(ends, index, side="right")
    first = np.concatenate([[0], ends])[shard]
    names = pa.array(list(source.shards)).take(pa.array(shard))
    return table.add_column(1, "file", names).add_column(2, "row", pa.array(index - first))


def _with_content(source: RunSource, pieces: Iterable[Piece]) -> Iterable[Piece]:
    pa, content = arrow(), RowContent(source)
    name = TEXT if source.kind == "text" else PATH
    for piece in pieces:
        given = piece.column("given_label").to_pylist()
        shown = content.at(piece.column("index").to_numpy(), given).column(name)
        table = pa.Table.from_batches([piece])
        yield table.append_column(name, shown.cast(pa.string()))


FORMATS = {
    form.name: form
    for form in (
        Format("table", ENDINGS, write_list),
        Format("cleanlab", ENDINGS, write_issues),
        Format("label-studio", (".json",), write_tasks, lambda out: (interface_file(out),)),
        Format("huggingface", (), write_dataset),
        Format("fiftyone", (), write_samples),
    )
}


def format_of(name: str | None, out: Path | None) -> Format:
    """The form called `name`; "table" where none is asked for. All others need a place to write to."""
    if name is None:
        return FORMATS["table"]
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    form = FORMATS[name]
    if out is None and name != "table":
        what = "a new folder" if form.is_folder else f"a file ({' or '.join(form.endings)})"
        raise SettingError(f"--format {name} came without --out; expected the name of {what}")
    return form
