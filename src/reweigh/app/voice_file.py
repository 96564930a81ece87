"""voices.parquet: of the most suspicious rows, the checked rows that speak against and for each.

Of many checked rows some are asked, spread evenly over all.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit import Ranking, gradient_products, strongest
from ..data import BatchOptions, Part, in_order
from ..files import whole_file
from ..runs import VOICE_COLUMNS, RunFile
from ..tables import arrow
from ..training import Outcome, criterion_for
from .preparation import Prepared
from .row_examples import label_names, row_examples

SUSPECTS, CHECKED = 100, 200
LONGEST = 2_000
"""Characters of an example; the page and the report show fewer."""


def write_voices(
    folder: Path, prepared: Prepared, outcome: Outcome, ranking: Ranking, options: BatchOptions
) -> None:
    """Ask the checked rows about the first rows of the ranking."""
    task, model = prepared.task, outcome.model
    asked = np.unique(np.linspace(0, len(task.clean) - 1, CHECKED).round().astype(np.int64))
    checked = task.clean.take(torch.from_numpy(asked))
    suspects = ranking.order[:SUSPECTS]
    criterion = criterion_for(model, task, options)
    few = task.train.take(torch.from_numpy(suspects.copy()))
    products = gradient_products(
        model, criterion, _examples(few, options), _examples(checked, options)
    )
    columns: dict[str, list[Any]] = {name: [] for name in VOICE_COLUMNS}
    known = _described(prepared, checked)
    for index, of_row in zip(prepared.train_rows[suspects].tolist(), products, strict=True):
        found = strongest(of_row)
        for place, product in (*found.against, *found.backing):
            for name, value in {"index": index, "product": product, **known[place]}.items():
                columns[name].append(value)
    with whole_file(folder / RunFile.VOICES) as stream:
        arrow("parquet").write_table(arrow().table(columns, schema=_schema()), stream)


def _examples(part: Part, options: BatchOptions) -> tuple[Tensor, Tensor]:
    """As the model takes them."""
    (every,) = in_order(part, size=len(part), options=options)
    return every.inputs, every.targets


def _described(prepared: Prepared, checked: Part) -> list[dict[str, Any]]:
    """Of each checked row: its file, its row there, its label, and the row itself."""
    files = [(role, row) for role, rows in prepared.clean_rows for row in rows.tolist()]
    there = [files[place] for place in checked.ids.tolist()]
    labels = label_names(prepared, checked.targets.numpy())
    examples: dict[tuple[str, int], str] = {}
    for role in {role for role, _ in there}:
        rows = np.array(sorted({row for other, row in there if other == role}), dtype=np.int64)
        found = row_examples(prepared, rows, role=role)
        examples |= {(role, row): text for row, text in zip(rows.tolist(), found, strict=True)}
    return [
        {"file": role, "row": row, "label": label, "example": examples[role, row][:LONGEST]}
        for (role, row), label in zip(there, labels, strict=True)
    ]


def _schema() -> Any:
    pa = arrow()
    kinds = {"index": pa.int64(), "product": pa.float64(), "row": pa.int64()}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in VOICE_COLUMNS])
