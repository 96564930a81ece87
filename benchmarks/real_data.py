"""`reweigh train` on real rows with realistic wrong labels, beside what a data scientist would do without it.

    python benchmarks/real_data.py --folder DIR --jobs 1     # runs the cells that are missing, then the table
    python benchmarks/real_data.py --folder DIR --again      # also cells that another commit has run; the new ones count
    python benchmarks/real_data.py --folder DIR --baselines  # baselines that were not installed when a cell was run
    python benchmarks/real_data.py --table                   # only the table

A cell is a data set (real_data_sets.py), a number of checked rows and a seed; it is appended to
results/real_data/cells.jsonl when it is done. Checked rows are a random draw; the model that `reweigh
train` keeps is judged on rows that nobody saw. Beside it, each with usual settings:

    lr_checked, lr_all      logistic regression on the checked rows; on all rows and the checked ones
                            (texts: character TF-IDF, 2 to 5 within words, C = 10; tables: scaled columns;
                            images: the histograms of edges that `reweigh train` has, or tiny images as they are)
    lr_balanced             on all rows, classes weighed alike, where the data are lopsided
    network                 the plain network of `reweigh train`, on all rows as labelled (photographs)
    gb_checked, gb_all      scikit-learn's gradient boosting (tables)
    cleanlab                cross-validated probabilities of the better of the two kinds for the data
                            (texts, images: regression; tables: boosting), label issues pruned, trained again

Seeds 1 to 3 (and yoruba's dev.tsv) are for development; those of the table are to be run once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from cell_store import CellStore
from real_data_sets import SETS, RealSet
from real_data_table import table

RESULTS = Path(__file__).parents[1] / "results" / "real_data"
FIELDS = ("dataset", "checked", "seed")
SIZES = (100, 50, 200)
SEEDS = (11, 12, 13)
TEST = 500


def cells(names, seeds, sizes):
    """The broadest view first: all sets at one size and seed, then the others."""
    small = {"wine": (30, 15, 50)}
    return [
        {"dataset": name, "checked": small.get(name, SIZES)[SIZES.index(size)], "seed": seed}
        for seed in seeds for size in sizes for name in names
    ]  # fmt: skip


def parts(data: RealSet, checked: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for testing, checked rows, rows to train on; every class has a checked row."""
    n, draw = len(data.truth), np.random.default_rng(seed)
    if data.test:
        test, rest = np.arange(n - data.test, n), draw.permutation(n - data.test)
    else:
        order = draw.permutation(n)
        size = min(TEST, n // 4)
        test, rest = order[:size], order[size:]
    if data.lopsided:
        return test, *_lopsided(data, checked, rest, draw)
    one_each = [rest[np.flatnonzero(data.truth[rest] == c)[0]] for c in np.unique(data.truth)]
    others = rest[~np.isin(rest, one_each)]
    first = np.array([*one_each, *others[: checked - len(one_each)]])
    return test, first, others[checked - len(one_each) :][: data.largest]


def _lopsided(data: RealSet, checked: int, rest: np.ndarray, draw) -> tuple[np.ndarray, np.ndarray]:
    """Checked rows, as many of each class, and rows to train on, of each class another number."""
    classes = np.unique(data.truth)
    by_class = [rest[data.truth[rest] == c] for c in draw.permutation(classes)]
    each = checked // len(classes)
    first = np.concatenate([rows[:each] for rows in by_class])
    few = [r[each:][:count] for r, count in zip(by_class, data.lopsided, strict=True)]
    return first, draw.permutation(np.concatenate(few))


def write(data: RealSet, labels: np.ndarray, rows: np.ndarray, path: Path) -> Path:
    """A file or folder as `reweigh train` takes it."""
    if data.kind != "images":
        frame = data.rows.iloc[rows].assign(target_label=labels[rows])
        frame.to_csv(path.with_suffix(".csv"), index=False)
        return path.with_suffix(".csv")
    from PIL import Image

    for row in rows:
        file = path / labels[row] / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.rows[row]).save(file)
    return path


def features(data: RealSet, train: np.ndarray, test: np.ndarray):
    """For the outside baselines: what their users would take."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import StandardScaler

    if data.kind == "text":
        texts = data.rows["text"]
        made = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
        made.fit(texts.iloc[train])
        return made.transform(texts)
    if data.kind == "images" and data.rows.shape[1] < 12:
        return data.rows.reshape(len(data.rows), -1) / 255.0
    if data.kind == "images":
        from reweigh.encoders import edge_features

        colours = data.rows if data.rows.ndim == 4 else data.rows[..., None]
        found = np.zeros((len(colours), edge_features(np.moveaxis(colours[:1], -1, 1)).shape[1]))
        asked = np.concatenate([train, test])
        found[asked] = edge_features(np.moveaxis(colours[asked], -1, 1))
        return found
    wide = pd.get_dummies(data.rows).astype(float)
    wide = wide.fillna(wide.iloc[train].median())
    return StandardScaler().fit(wide.iloc[train]).transform(wide)


def simple(data: RealSet, given: np.ndarray, test, checked, train) -> dict[str, float]:
    """Accuracies of the outside baselines."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    x = features(data, np.concatenate([train, checked]), test)
    labels = np.where(np.isin(np.arange(len(given)), checked), data.truth, given)
    codes = np.unique(data.truth, return_inverse=True)[1]
    labels = np.searchsorted(np.unique(data.truth), labels)
    both = np.concatenate([train, checked])
    strength = 10.0 if data.kind == "text" else 1.0
    lr = partial(LogisticRegression, C=strength, max_iter=500)
    gb = partial(HistGradientBoostingClassifier, random_state=0)

    def accuracy(make, rows) -> float:
        return float((make().fit(x[rows], labels[rows]).predict(x[test]) == codes[test]).mean())

    found = {"lr_checked": accuracy(lr, checked), "lr_all": accuracy(lr, both)}
    if data.lopsided:
        found["lr_balanced"] = accuracy(partial(lr, class_weight="balanced"), both)
    if data.kind == "table":
        found |= {"gb_checked": accuracy(gb, checked), "gb_all": accuracy(gb, both)}
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return found
    make = gb if data.kind == "table" else lr
    p = cross_val_predict(make(), x[both], labels[both], cv=3, method="predict_proba")
    codes_here = np.unique(labels[both], return_inverse=True)[1]
    bad = find_label_issues(codes_here, p, n_jobs=1)
    keep = both[~bad | np.isin(both, checked)]
    if len(np.unique(labels[keep])) > 1:
        found["cleanlab"] = accuracy(make, keep)
    return found


def run_cell(cell: dict, *, folder: Path) -> dict:
    import torch

    import reweigh
    from reweigh.app import Options, train
    from reweigh.experiments.provenance import commit, versions

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started, used = time.time(), time.process_time()
    data = SETS[cell["dataset"]](folder)
    given = data.given(cell["seed"])
    test, checked, rows = parts(data, cell["checked"], cell["seed"])
    large = data.kind == "images" and data.rows.shape[1] >= 12
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        options = Options(
            data=write(data, given, rows, home / "rows"),
            clean=write(data, data.truth, checked, home / "checked"),
            target=None if data.kind == "images" else "target_label",
            text="text" if data.kind == "text" else None,
            only_clean_classes=True,
            threads=1,
        )
        summary = train(options, home / "run")
        predictor = reweigh.load(home / "run")
        if data.kind == "images":
            write(data, data.truth, test, home / "test")
            files = [home / "test" / data.truth[row] / f"{row}.png" for row in test]
            predicted = predictor.predict(files)
        else:
            predicted = predictor.predict(data.rows.iloc[test])
        network = _network(home / "run", predictor, files, data.truth[test]) if large else {}
        winner = json.loads((home / "run" / "winner.json").read_text())
        audit = pd.read_parquet(home / "run" / "audit.parquet")
        found = _auroc(audit, data, given, rows)
    ours = float((predicted == data.truth[test]).mean())
    seconds = time.process_time() - used
    return {
        **cell,
        "train_rows": len(rows),
        "wrong": float((given[rows] != data.truth[rows]).mean()),
        "reweigh_train": ours,
        "chosen": winner["name"],
        "parts": {part["name"]: round(part["weight"], 3) for part in winner["parts"]},
        "expected": summary["expected"],
        "interval": summary["interval"],
        "judged_rows": summary["judged_rows"],
        "candidates": {c["name"]: c["accuracy"] for c in summary["candidates"]},
        "simple": simple(data, given, test, checked, rows) | network,
        "auroc": found,
        "cpu_seconds": round(seconds, 1),
        "seconds": round(time.time() - started, 1),
        "versions": versions(),
        "commit": commit(),
    }


def with_baselines(row: dict, *, folder: Path) -> dict:
    """The cell with all outside baselines; those that it has must come out as they were."""
    warnings.simplefilter("ignore")
    data = SETS[row["dataset"]](folder)
    test, checked, rows = parts(data, row["checked"], row["seed"])
    found = simple(data, data.given(row["seed"]), test, checked, rows)
    for name in found.keys() & row["simple"].keys():
        assert abs(found[name] - row["simple"][name]) < 1e-9, (row["dataset"], name, found[name])
    return {**row, "simple": row["simple"] | found}


def _network(run: Path, predictor, files, truth) -> dict[str, float]:
    """Of the plain network, which the run keeps beside its candidates."""
    import torch

    from reweigh.app.networks import make_model
    from reweigh.runs import ModelDescription, RunFile, read
    from reweigh.training import read_model

    described = read(run / RunFile.NETWORK, ModelDescription)
    model = make_model(described.network)
    model.load_state_dict(read_model(run / RunFile.CANDIDATES / "plain"))
    mean, std = (torch.tensor(v)[:, None, None] for v in (described.mean, described.std))
    pixels = torch.from_numpy(predictor.encoded(files)).float() / described.peak
    with torch.no_grad():
        said = model.eval()((pixels - mean) / std).argmax(1).numpy()
    return {"network": float((np.array(predictor.classes)[said] == truth).mean())}


def _auroc(audit: pd.DataFrame, data: RealSet, given, rows) -> dict[str, float]:
    """How well wrong labels are found; image files are listed by class and name."""
    from sklearn.metrics import roc_auc_score

    order = rows
    if data.kind == "images":
        order = np.array(sorted(rows, key=lambda row: f"{given[row]}/{row}.png"))
    wrong = (given != data.truth)[order[audit["index"]]]
    if wrong.all() or not wrong.any():
        return {}
    found = {"suspicion": float(roc_auc_score(wrong, audit["suspicion"]))}
    if audit["posterior"].notna().all():
        found["posterior"] = float(roc_auc_score(wrong, 1 - audit["posterior"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="where the files of the sets are"
    )
    parser.add_argument("--again", action="store_true", help="run cells of other commits again")
    parser.add_argument(
        "--baselines", action="store_true", help="only add the baselines that cells lack"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sets", default="", help="names, with commas between them")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    from reweigh.experiments.provenance import commit

    store = CellStore(asked.out / "cells.jsonl", FIELDS)
    if asked.baselines:
        for row in [r for r in store.rows().values() if "cleanlab" not in r["simple"]]:
            store.append([with_baselines(row, folder=asked.folder)])
    elif not asked.table:
        names = [name for name in asked.sets.split(",") if name] or list(SETS)
        seeds, sizes = ([int(s) for s in text.split(",")] for text in (asked.seeds, asked.sizes))
        todo = cells(names, seeds, sizes)
        run, now = partial(run_cell, folder=asked.folder), commit()
        store.run_missing(
            todo, run, jobs=asked.jobs, outdated=lambda row: asked.again and row["commit"] != now
        )
    planned = len(SETS) * len(SIZES) * len(SEEDS)
    (asked.out / "table.md").write_text(table(store.rows(), planned=planned))


if __name__ == "__main__":
    main()
