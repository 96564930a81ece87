"""Predictions as a file: index, predicted, and a probability a class; written piece by piece."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..encoders import ImageEncoder
from ..errors import DataError
from ..files import whole
from ..tables import arrow, open_table
from ..text import harmless
from .predict import Predictor, image_paths, load


def write_predictions(run: Path, data: Path, out: Path, *, encoding: str = "utf-8") -> int:
    """Predict for every row of `data`; how many there were."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{out} has an unknown ending; expected .csv or .parquet")
    predictor = load(run)
    rows = 0
    with whole(out) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        writer: Any = None
        for table in _tables(predictor, data, encoding):
            rows += table.num_rows
            if out.suffix.lower() == ".parquet":
                writer = writer or arrow("parquet").ParquetWriter(stream, table.schema)
                writer.write_table(table)
                continue
            if writer is None:
                writer = csv.writer(text)
                writer.writerow([harmless(name) for name in table.column_names])
            for row in table.to_pylist():
                writer.writerow([_cell(cell) for cell in row.values()])
        if not rows:
            raise DataError(f"{data} has no rows; expected rows to predict for")
        if out.suffix.lower() == ".parquet":
            writer.close()
        text.flush()
        text.detach()
    return rows


def _tables(predictor: Predictor, data: Path, encoding: str) -> Iterator[Any]:
    pa = arrow()
    images = isinstance(predictor.encoder, ImageEncoder)
    source: Any = data if images else open_table(data, encoding=encoding)
    names = image_paths(data) if images else None
    first = 0
    for found in predictor.pieces(source):
        columns: dict[str, Any] = {"index": np.arange(first, first + len(found))}
        if names is not None:
            columns["file"] = [str(path) for path in names[first : first + len(found)]]
        if predictor.classes:
            columns["predicted"] = [predictor.classes[c] for c in found.argmax(1)]
            for k, name in enumerate(predictor.classes):
                columns[f"p_{name}"] = found[:, k]
        else:
            columns["predicted"] = found
        yield pa.table(columns)
        first += len(found)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return harmless(value) if isinstance(value, str) else value
