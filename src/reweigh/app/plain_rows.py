"""The user's rows as plain models take them.

    table     the encoded columns
    text      n-grams (encoders/ngrams.py), rotated (candidates/rotation.py)
    images    histograms of edges (encoders/edges.py)

Of a large data set the plain models learn LARGEST rows, drawn at random; fewer if these are wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..candidates import (
    Fitted,
    Labels,
    Places,
    PlainData,
    RidgeModel,
    Rotation,
    SoftmaxModel,
    even_counts,
)
from ..data import Part
from ..encoders import NgramEncoder, edge_features, fit_ngrams, text_of
from ..rng import Draws
from ..tables import ImageFolder, arrow
from .inspection import Say
from .preparation import Prepared

LARGEST = {"table": 50_000, "text": 20_000, "images": 20_000}
MOST_CELLS = 10_000_000
FEATURES = {"table": "encoded", "text": "ngrams", "images": "edges"}


@dataclass(frozen=True, eq=False)
class PlainRows:
    """data for candidates; kind of features; `sample` [k] are the positions of its train rows."""

    data: PlainData
    features: str
    sample: Places
    ngrams: NgramEncoder | None = None
    rotation: Rotation | None = None

    def as_saved(self, fitted: Fitted) -> Fitted:
        """The model of rows as they come, without the rotation."""
        if self.rotation is None:
            return fitted
        assert isinstance(fitted, (SoftmaxModel, RidgeModel)), "texts have linear models"
        return self.rotation.back(fitted)


def plain_rows(prepared: Prepared, *, seed: int, say: Say) -> PlainRows:
    """Of a task."""
    task, kind = prepared.task, prepared.inspected.kind
    sample, most = np.arange(len(task.train)), LARGEST[kind]
    if kind == "table":
        most = min(most, MOST_CELLS // task.train.inputs.shape[1])
    if len(sample) > most:
        say(f"plain models learn {most:,} of the rows, drawn at random")
        sample = np.sort(Draws(seed, "plain rows").permutation(len(sample))[:most])
    train = task.train.take(torch.from_numpy(sample))
    parts = {"train": train, "checked": task.clean, "test": task.test}
    if prepared.validated:
        parts["validation"] = task.hyper_validation
    ngrams, rotation = None, None
    if kind == "text":
        texts = _texts(prepared, train)
        ngrams = fit_ngrams([*texts["train"], *texts["checked"]])
        sparse = {name: ngrams.encode(each) for name, each in texts.items()}
        rotation = Rotation.over(sparse["checked"], sparse["train"], seed=seed)
        features: dict[str, Any] = {name: rotation(rows) for name, rows in sparse.items()}
    else:
        features = {name: _dense(part, kind) for name, part in parts.items()}
    given, labels = as_labels(train.targets), as_labels(task.clean.targets)
    classes = len(prepared.classes) or 1
    counts = even_counts(given, labels, classes)
    if counts is not None:
        say("the classes are lopsided and the checked rows even: plain models weigh classes alike")
    data = PlainData(features, given, labels, classes, counts)
    return PlainRows(data, FEATURES[kind], sample, ngrams, rotation)


def as_labels(targets: torch.Tensor) -> Labels:
    """Classes as they are, numbers in 64 bits."""
    return targets.double().numpy() if targets.is_floating_point() else targets.numpy()


def _dense(part: Part, kind: str) -> Any:
    inputs = part.inputs[part.ids].numpy()
    return edge_features(inputs) if kind == "images" else inputs.astype(np.float32, copy=False)


def _texts(prepared: Prepared, train: Part) -> dict[str, list[str]]:
    """By part, in the order of its rows."""
    task = prepared.task
    clean = [text for role, rows in prepared.clean_rows for text in _texts_at(prepared, role, rows)]
    from_clean = {name: [clean[i] for i in part.ids.tolist()]
                  for name, part in (("checked", task.clean), ("test", task.test))
                  if name == "checked" or prepared.judged_on != "test"}  # fmt: skip
    if prepared.validated:
        rows = task.hyper_validation.ids.numpy()
        from_clean["validation"] = _texts_at(prepared, "validation", rows)
    if prepared.judged_on == "test":
        from_clean["test"] = _texts_at(prepared, "test", task.test.ids.numpy())
    return {"train": _texts_at(prepared, "data", train.ids.numpy()), **from_clean}


def _texts_at(prepared: Prepared, role: str, rows: Places) -> list[str]:
    """The texts at `rows` of a file, in that order."""
    if not len(rows):
        return []
    column = prepared.inspected.encoder.column  # type: ignore[union-attr]
    files = prepared.inspected.sources[role].files
    wanted, found, first = np.unique(rows), dict[int, str](), 0
    assert not isinstance(files, ImageFolder), "texts are in tables"
    for piece in files.pieces([column]):
        low, high = np.searchsorted(wanted, [first, first + piece.num_rows])
        here = wanted[low:high]
        few = piece.take(arrow().array(here - first))
        found.update(zip(here.tolist(), text_of(few, column), strict=True))
        first += piece.num_rows
    return [found[row] for row in rows.tolist()]
