"""Gradient boosting of scikit-learn beside LightGBM's, as candidates of `reweigh train` on tables.

    python benchmarks/tree_makers.py --folder DIR      # runs the cells that are missing, then the table
    python benchmarks/tree_makers.py --table           # only the table

A cell is a table of real_data_sets.py and a seed for development (1 to 3), with 100 checked rows (wine: 30); --seeds says which.
Both get the same rows, the same settings (80 rounds, rate 0.1, 16 leaves) and columns, and one thread. For each: the
accuracy on unseen rows of boosting on four choices of rows, of the blend of all plain candidates with it (no
networks), and the seconds of CPU time that its own candidates took.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from cell_store import CellStore
from real_data import features, parts
from real_data_sets import SETS

from reweigh import candidates

RESULTS = Path(__file__).parents[1] / "results" / "tree_makers"
NAMES = ("biopsies", "wine", "credit", "imbalanced", "cells")
WAYS = ("boosting_checked", "boosting_all", "boosting_corrected", "boosting_pruned", "blend")


def run_cell(cell: dict, *, folder: Path) -> dict:
    from reweigh.experiments.provenance import commit, versions

    warnings.simplefilter("ignore")
    data = SETS[cell["dataset"]](folder)
    given = data.given(cell["seed"])
    checked = 30 if cell["dataset"] == "wine" else 100
    test, known, train = parts(data, checked, cell["seed"])
    x = features(data, np.concatenate([train, known]), test).astype(np.float32)
    classes = np.unique(data.truth)
    truth, given = (np.searchsorted(classes, names) for names in (data.truth, given))
    rows = candidates.PlainData(
        {"train": x[train], "checked": x[known], "test": x[test]},
        given[train],
        truth[known],
        len(classes),
    )
    found: dict = {}
    for library in candidates.BOOSTERS:
        found[library] = _with(library, rows, truth[test])
    return {**cell, "checked": checked, **found, "versions": versions(), "commit": commit()}


def _with(library: str, rows: candidates.PlainData, truth: np.ndarray) -> dict[str, float]:
    folds = candidates.usual_folds(rows.labels, seed=0)
    judged, said, seconds = [], {}, 0.0
    for each in candidates.plain_candidates(rows, trees=True, library=library):
        started = time.process_time()
        most = None if each.name.startswith("linear") else len(folds[0])
        judged.append(candidates.judge(each, rows.labels, folds, classes=rows.classes, most=most))
        model = each.fit(np.arange(len(rows.labels)))[judged[-1].variant]
        said[each.name] = model.probabilities("test")
        if each.name.startswith("boosting"):
            seconds += time.process_time() - started
    mixture = candidates.blend(judged, rows.labels, folds[0])
    said["blend"] = candidates.mixed(mixture.members, said)
    right = {name: float((p.argmax(1) == truth).mean()) for name, p in said.items()}
    return {**{name: right[name] for name in WAYS}, "seconds": round(seconds, 1)}


def table(rows: dict) -> str:
    frame = pd.DataFrame(rows.values()).sort_values(["dataset", "seed"])
    lines = [
        "# Whose gradient boosting", "",
        f"{len(frame)} cells, seeds {', '.join(map(str, sorted(frame['seed'].unique())))}; accuracy on unseen rows, mean "
        "over seeds: scikit-learn / LightGBM. See the head of `benchmarks/tree_makers.py`.", "",
        "| data | " + " | ".join((*WAYS, "seconds")) + " |", "|---|" + "---|" * (len(WAYS) + 1),
    ]  # fmt: skip
    gains = []
    for name, group in frame.groupby("dataset"):
        ours, light = (pd.DataFrame(list(group[library])).mean() for library in candidates.BOOSTERS)
        gains.append(100 * (light - ours))
        shown = [f"{ours[w]:.3f} / {light[w]:.3f}" for w in WAYS]
        lines.append(
            f"| {name} | "
            + " | ".join(shown)
            + f" | {ours['seconds']:.0f} / {light['seconds']:.0f} |"
        )
    mean = pd.DataFrame(gains).mean()
    lines += ["", "LightGBM ahead in the mean of all, in points: "
              + ", ".join(f"{w} {mean[w]:+.1f}" for w in WAYS) + ".", ""]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--folder", type=Path, default=Path("."))
    parser.add_argument("--seeds", default="1,2,3")
    asked = parser.parse_args()
    store = CellStore(RESULTS / "cells.jsonl", ("dataset", "seed"))
    if not asked.table:
        todo = [
            {"dataset": name, "seed": seed}
            for seed in map(int, asked.seeds.split(","))
            for name in NAMES
        ]
        store.run_missing(todo, partial(run_cell, folder=asked.folder), jobs=1)
    (RESULTS / "table.md").write_text(table(store.rows()))


if __name__ == "__main__":
    main()
