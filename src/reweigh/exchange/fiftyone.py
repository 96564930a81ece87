"""FiftyOne: a folder for `fiftyone.Dataset.from_dir(..., dataset_type=FiftyOneImageClassificationDataset)`.

    data.json      the path of every image, by name; images stay where they are
    labels.json    the classes, and of every image its given label with what is said of it

The given label is the field `ground_truth`; index, p_wrong, suggested, p_suggested and flag are
attributes of it. So `dataset.sort_by("ground_truth.p_wrong", reverse=True)` puts the most suspicious
first.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import SettingError
from ..files import whole_folder
from ..runs import RunSource
from ..tables import Piece
from .ranked_rows import ranked_rows
from .row_content import RowContent

IMAGES, LABELS = "data.json", "labels.json"


def write_samples(source: RunSource, pieces: Iterable[Piece], out: Path) -> int:
    """Write the folder `out`; the number of images."""
    if source.kind != "images":
        raise SettingError(
            f"FiftyOne shows images, and this run has a {source.kind}; try --format label-studio"
        )
    content = RowContent(source, files=True)
    images: dict[str, str] = {}
    labels: dict[str, Any] = {}
    for piece in pieces:
        rows = list(ranked_rows(piece))
        index = piece.column("index").to_numpy()
        paths = content.at(index, [row.given for row in rows]).column("path").to_pylist()
        for row, path in zip(rows, paths, strict=True):
            images[str(row.index)] = str((source.data / path).absolute())
            said = {"index": row.index, "p_wrong": row.wrong, "suggested": row.suggested,
                    "p_suggested": row.p_suggested, "flag": row.flagged}  # fmt: skip
            known = {name: value for name, value in said.items() if value is not None}
            labels[str(row.index)] = {"label": row.given, "attributes": known}
    with whole_folder(out) as folder:
        _write(folder / IMAGES, images)
        _write(folder / LABELS, {"classes": list(source.classes), "labels": labels})
    return len(images)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
