"""OpenDataVal's noisy-label task, on the data that it can load without a network.

    pip install --no-deps opendataval torcheval geomloss==0.2.6 pykeops pandera    # in an environment of its own
    python benchmarks/opendataval_task.py             # runs the cells that are missing, then writes the table
    python benchmarks/opendataval_task.py --table     # only the table

A cell is a data set, valid rows as the task has them or with right labels, and a seed. 20% of the labels of
500 train rows are wrong (`mix_labels`). The task also makes 20% of the labels of the 100 valid rows wrong; for
`reweigh` valid rows are the checked ones, so the task is run a second time with their labels right.

    f1       of OpenDataVal's own `noisy_detection`: values clustered in two
    auroc    of the values as a ranking of right over wrong labels

KNNShapley, DataOob (100 models) and Lava are those of OpenDataVal, with its defaults; DataOob trains its logistic
regression. Torchvision and transformers, which it imports for other data, are stood in for.
"""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import numpy as np
from cell_store import CellStore, Row, command

RESULTS = Path(__file__).parents[1] / "results" / "opendataval"
FIELDS = ("dataset", "valid", "seed")
SETS = {"digits": 500, "breast_cancer": 350, "gaussian_classifier": 500, "iris": 90}
VALID = {"noisy": "20% wrong, as in the task", "right": "right"}
SEEDS, NAMES = range(5), ("reweigh", "KNNShapley", "DataOob", "Lava", "random")


class StandIn(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in() -> None:
    names = ("datasets", "transforms", "transforms.functional", "models", "models.resnet")
    for name in ("torchvision", *(f"torchvision.{each}" for each in names), "transformers"):
        made = sys.modules.setdefault(name, StandIn(name))
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, made)


def run(cell: Row) -> Row:
    stand_in()
    from opendataval.dataloader import DataFetcher, mix_labels
    from opendataval.dataval import DataOob, KNNShapley, LavaEvaluator, RandomEvaluator
    from opendataval.experiment.exper_methods import noisy_detection
    from opendataval.model import ClassifierSkLearnWrapper
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from reweigh.integrations.opendataval import ReweighEvaluator

    seed, train = cell["seed"], SETS[cell["dataset"]]
    few = train < 100
    fetcher = DataFetcher(cell["dataset"], random_state=seed)
    fetcher = fetcher.split_dataset_by_count(train, 30 if few else 100, 20 if few else 100)
    right = fetcher.y_valid.copy()
    fetcher = fetcher.noisify(mix_labels, noise_rate=0.2)
    if cell["valid"] == "right":
        fetcher.y_valid = right
    classes = fetcher.y_train.shape[1]
    model = ClassifierSkLearnWrapper(LogisticRegression, classes, max_iter=200)
    evaluators = {
        "reweigh": ReweighEvaluator(trees=True, random_state=seed),
        "KNNShapley": KNNShapley(random_state=seed),
        "DataOob": DataOob(num_models=100, random_state=seed),
        "Lava": LavaEvaluator(random_state=seed),
        "random": RandomEvaluator(random_state=seed),
    }
    wrong = np.zeros(train, dtype=bool)
    wrong[fetcher.noisy_train_indices] = True
    found: Row = dict(cell)
    for name, evaluator in evaluators.items():
        start = time.perf_counter()
        try:
            made = evaluator.train(fetcher, pred_model=model)
            values = np.asarray(made.data_values, dtype=float).ravel()
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:200]}
            continue
        found[name] = {
            "f1": float(noisy_detection(made, fetcher)["kmeans_f1"]),
            "auroc": float(roc_auc_score(~wrong, values)),
            "seconds": time.perf_counter() - start,
        }
    return found


def table(rows: dict[tuple[object, ...], Row]) -> str:
    lines = [
        "# OpenDataVal's noisy-label task", "",
        f"By `benchmarks/opendataval_task.py`, mean of {len(SEEDS)} seeds: F1 of its `noisy_detection` / AUROC.", "",
        "| data | labels of the valid rows | " + " | ".join(NAMES) + " |", "|" + "---|" * (2 + len(NAMES)),
    ]  # fmt: skip
    for dataset in SETS:
        for valid, title in VALID.items():
            here = [
                row for row in rows.values() if (row["dataset"], row["valid"]) == (dataset, valid)
            ]
            if here:
                cells = [_shown([row[name] for row in here]) for name in NAMES]
                lines.append(f"| {dataset} | {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(found: list[Row]) -> str:
    done = [each for each in found if "failed" not in each]
    if not done:
        return "failed"
    return " / ".join(f"{np.mean([each[name] for each in done]):.3f}" for name in ("f1", "auroc"))


if __name__ == "__main__":
    cells = [dict(zip(FIELDS, (d, v, s), strict=True)) for s in SEEDS for d in SETS for v in VALID]
    command(__doc__, CellStore(RESULTS / "cells.jsonl", FIELDS), cells, run, table)
