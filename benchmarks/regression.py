"""The blend of a regression beside simple baselines, where 40% of the numbers are too high.

    python benchmarks/regression.py             # runs the cells that are missing, then the table
    python benchmarks/regression.py --table     # only the table

A cell is a data set of scikit-learn, a number of checked rows and a seed. Wrong numbers are raised by 0.5 to 2 standard
deviations. Judged are the plain candidates of `reweigh train` and their blend (no networks, which take most of the time):
root mean square error on 150 unseen rows, in units of the target's scale. Beside it

    ridge_checked, ridge_all    ridge regression (strength 1) on the checked rows; on all rows and the checked ones
    ridge_cv                    on the checked rows, strength by leaving one out
    gb_checked, gb_all          scikit-learn's gradient boosting

`error` is one standard error of the difference to the best of them in the mean over seeds, row by row. Seeds 1 to 3 are for
development; those of the table were run once.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from cell_store import CellStore, command
from sklearn import datasets

RESULTS = Path(__file__).parents[1] / "results" / "regression"
SEEDS, SIZES, TEST = (11, 12, 13), (50, 100), 150
SIMPLE = ("ridge_checked", "ridge_cv", "ridge_all", "gb_checked", "gb_all")


def diabetes():
    return datasets.load_diabetes(return_X_y=True)


def friedman():
    return datasets.make_friedman1(800, 10, noise=1.0, random_state=1)


SETS = {"diabetes": diabetes, "friedman": friedman}


def run_cell(cell: dict) -> dict:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge, RidgeCV

    from reweigh import candidates
    from reweigh.encoders import robust_scale
    from reweigh.experiments.provenance import commit, versions

    warnings.simplefilter("ignore")
    x, truth = SETS[cell["dataset"]]()
    draw, m = np.random.default_rng(cell["seed"]), cell["checked"]
    order = draw.permutation(len(truth))
    test, checked, train = order[:TEST], order[TEST : TEST + m], order[TEST + m :]
    given, wrong = truth.astype(float), draw.random(len(truth)) < 0.4
    given = given + np.where(wrong, truth.std() * draw.uniform(0.5, 2, len(truth)), 0)
    x = ((x - np.median(x[train], 0)) / (x[train].std(0) + 1e-9)).astype(np.float32)
    centre, scale = robust_scale(given[train])
    truth, given = (truth - centre) / scale, np.clip((given - centre) / scale, -10, 10)
    parts = {"train": x[train], "checked": x[checked], "test": x[test]}
    data = candidates.PlainData(parts, given[train], truth[checked], 1)
    folds = candidates.usual_folds(data.labels, seed=0)
    judged, said = {}, {}
    for each in candidates.number_candidates(data, trees=True):
        most = None if each.name.startswith("linear") else len(folds[0])
        judged[each.name] = candidates.judge(each, data.labels, folds, classes=1, most=most)
        model = each.fit(np.arange(m))[judged[each.name].variant]
        said[each.name] = model.probabilities("test")
    mixture = candidates.blend([*judged.values()], data.labels, folds[0])
    said["blend"] = candidates.mixed(mixture.members, said)
    judged["blend"] = mixture.judgement
    rights = {name: each.right(data.labels) for name, each in judged.items()}
    chosen = candidates.choose(rights, ("blend",))
    both, labels = np.concatenate([train, checked]), np.where(np.isin(np.arange(len(truth)), checked), truth, given)  # fmt: skip
    models = {
        "ridge_checked": (Ridge(1.0), checked),
        "ridge_cv": (RidgeCV(np.logspace(-1, 3, 13)), checked),
        "ridge_all": (Ridge(1.0), both),
        "gb_checked": (HistGradientBoostingRegressor(random_state=0), checked),
        "gb_all": (HistGradientBoostingRegressor(random_state=0), both),
    }
    theirs = {k: model.fit(x[rows], labels[rows]).predict(x[test]) for k, (model, rows) in models.items()}  # fmt: skip
    squares = {k: ((p - truth[test]) ** 2).round(6).tolist() for k, p in theirs.items()}
    ours = ((said[chosen][:, 0] - truth[test]) ** 2).round(6).tolist()
    return {**cell, "chosen": chosen, "squares": {"reweigh": ours, **squares},
            "versions": versions(), "commit": commit()}  # fmt: skip


def table(rows: dict) -> str:
    frame = pd.DataFrame(rows.values()).sort_values(["dataset", "checked", "seed"])
    lines = [
        "# The blend of a regression beside simple baselines", "",
        f"{len(frame)} cells, seeds {', '.join(map(str, sorted(frame['seed'].unique())))}; root mean square error on unseen "
        "rows, mean over seeds. See the head of `benchmarks/regression.py`.", "",
        "| data | checked | blend | " + " | ".join(SIMPLE) + " | less squared error than the best simple | error |",
        "|---|---|---|" + "---|" * len(SIMPLE) + "---|---|",
    ]  # fmt: skip
    for (name, checked), group in frame.groupby(["dataset", "checked"]):
        squares = [{k: np.array(v) for k, v in each.items()} for each in group["squares"]]
        root = {k: np.mean([np.sqrt(s[k].mean()) for s in squares]) for k in squares[0]}
        best = min(SIMPLE, key=root.__getitem__)
        ahead = np.concatenate([s[best] - s["reweigh"] for s in squares])
        error = ahead.std(ddof=1) / np.sqrt(len(ahead))
        shown = " | ".join(f"{root[k]:.3f}" for k in ("reweigh", *SIMPLE))
        lines.append(f"| {name} | {checked} | {shown} | {ahead.mean():+.3f} | {error:.3f} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    todo = [
        {"dataset": name, "checked": m, "seed": s} for s in SEEDS for name in SETS for m in SIZES
    ]
    store = CellStore(RESULTS / "cells.jsonl", ("dataset", "checked", "seed"))
    command(__doc__, store, todo, run_cell, table)
