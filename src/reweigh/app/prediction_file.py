"""Predictions as a file: index, predicted, and the probability of each class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..encoders import ImageEncoder
from ..errors import DataError
from ..tables import Piece, arrow, open_table
from .predict import Predictor, image_paths, load
from .row_files import is_parquet, write_rows


def write_predictions(run: Path, data: Path, out: Path, *, encoding: str = "utf-8") -> int:
    """Predict for every row of `data`; how many there were."""
    is_parquet(out)  # a name that cannot be written is refused before any work
    return write_rows(out, _pieces(load(run), data, encoding))


def _pieces(predictor: Predictor, data: Path, encoding: str) -> Iterator[Piece]:
    images = isinstance(predictor.encoder, ImageEncoder)
    source: Any = data if images else open_table(data, encoding=encoding)
    names = image_paths(data) if images else None
    first = 0
    for outputs in predictor.pieces(source):
        columns: dict[str, Any] = {"index": np.arange(first, first + len(outputs))}
        if names is not None:
            columns["file"] = [str(path) for path in names[first : first + len(outputs)]]
        if predictor.classes:
            columns["predicted"] = [predictor.classes[c] for c in outputs.argmax(1)]
            for k, name in enumerate(predictor.classes):
                columns[f"p_{name}"] = outputs[:, k]
        else:
            columns["predicted"] = outputs
        yield arrow().table(columns)
        first += len(outputs)
    if not first:
        raise DataError(f"{data} has no rows; expected rows to predict for")
