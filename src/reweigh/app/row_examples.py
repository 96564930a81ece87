"""Rows of the user's files, and labels, as the files of a run and the pages made of them have them."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from ..tables import ImageFolder, arrow, words
from .preparation import Prepared


def label_names(prepared: Prepared, labels: npt.NDArray[Any]) -> list[str | None]:
    """Classes by name, scaled numbers as they were; None for -1 and NaN."""
    if prepared.classes:
        return [prepared.classes[int(c)] if c >= 0 else None for c in labels]
    scale = prepared.target_scale
    values = labels.astype(np.float64) * scale.scale + scale.centre
    return [None if np.isnan(v) else f"{float(f'{v:.6g}'):.15g}" for v in values]


def row_examples(
    prepared: Prepared, index: npt.NDArray[np.int64], *, role: str = "data"
) -> list[str]:
    """The rows at `index` of a file, in that order: cells as JSON, the text, or the image's path."""
    files = prepared.inspected.sources[role].files
    if isinstance(files, ImageFolder):
        return [files.files[i] for i in index.tolist()]
    text = getattr(prepared.inspected.encoder, "column", None)
    place = {row: k for k, row in enumerate(index.tolist())}
    examples, wanted, first = [""] * len(index), np.sort(index), 0
    for piece in files.pieces(None if text is None else [text]):
        low, high = np.searchsorted(wanted, [first, first + piece.num_rows])
        rows = wanted[low:high]
        if len(rows):
            few = piece.take(arrow().array(rows - first))
            cells = {name: words(few.column(name)).to_pylist() for name in few.schema.names}
            for k, row in enumerate(rows.tolist()):
                entry = {name: column[k] for name, column in cells.items()}
                examples[place[row]] = (
                    entry[text] or "" if text is not None else json.dumps(entry, ensure_ascii=False)
                )
        first += piece.num_rows
    return examples
