"""Boosted trees grown by LightGBM, as the same arrays that scikit-learn's become (trees.py).

    booster's text -> nodes   go on at left if row[feature] <= threshold, else at right

LightGBM is needed to fit and never to predict: a saved run holds arrays, and is read without it.
Its first trees contain the mean of the labels, so that `base` is zero for classes that were met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..optional import optional
from .learner import Fitted, Places, Reals, Rows
from .trees import TreesModel, constant, weighted_rows


@dataclass(frozen=True)
class LightBoosting:
    """LightGBM's gradient boosting, with the settings of `Boosting`."""

    rounds: int = 80
    rate: float = 0.1
    leaves: int = 16
    least: int = 5
    seed: int = 0
    name: str = "gradient boosting (LightGBM)"

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> TreesModel:
        """The model. A soft label counts as several rows with weights."""
        light = lightgbm()
        settings: dict[str, Any] = {
            "learning_rate": self.rate, "num_leaves": self.leaves, "min_data_in_leaf": self.least,
            "seed": self.seed, "deterministic": True, "force_row_wise": True, "use_missing": False,
            "verbosity": -1,
        }  # fmt: skip
        classes = labels.shape[1]
        if classes == 1:
            met, x, y, counts = np.zeros(1, np.int64), rows, labels[:, 0], weights
            settings["objective"] = "regression"
        else:
            row, label, counts = weighted_rows(labels, weights)
            met, y = np.unique(label, return_inverse=True)  # type: ignore[assignment]
            x = rows[row]
            if len(met) == 1:
                return constant(int(met[0]), classes)
            settings |= (
                {"objective": "binary"}
                if len(met) == 2
                else {"objective": "multiclass", "num_class": len(met)}
            )
        data = light.Dataset(np.asarray(x), y, weight=counts, params=settings)
        booster = light.train(settings, data, num_boost_round=self.rounds)
        return _from_dump(booster.dump_model(), met, classes)


def lightgbm() -> Any:
    """LightGBM, or which extra brings it."""
    return optional("lightgbm", package="lightgbm", needed_for="--trees lightgbm", extra="trees")


def _from_dump(dump: Mapping[str, Any], met: Places, classes: int) -> TreesModel:
    """From `Booster.dump_model`; `met` are the classes that its trees are of."""
    columns: dict[str, list[float]] = {n: [] for n in ("feature", "threshold", "left", "right")}
    values: list[tuple[float, int]] = []
    roots, depth = [], 0
    for k, tree in enumerate(dump["tree_info"]):
        # Of two classes there is one tree a round: the log-odds of the second.
        of = int(met[-1] if len(met) == 2 else met[k % len(met)])
        first = len(values)
        roots.append(first)
        below: Sequence[tuple[Mapping[str, Any], int]] = [(tree["tree_structure"], 0)]
        end = first + 1
        while below:
            level, below = below, []
            for node, deep in level:
                here, depth = len(values), max(depth, deep)
                leaf = "split_feature" not in node
                if not leaf and node["decision_type"] != "<=":
                    raise AssertionError(f"numbers are split by <=, not {node['decision_type']!r}")
                columns["feature"].append(0 if leaf else node["split_feature"])
                columns["threshold"].append(0.0 if leaf else node["threshold"])
                columns["left"].append(here if leaf else end)
                columns["right"].append(here if leaf else end + 1)
                values.append((node["leaf_value"] if leaf else 0.0, of))
                if not leaf:
                    below += [(node["left_child"], deep + 1), (node["right_child"], deep + 1)]
                    end += 2
    of_class = np.zeros((len(values), classes))
    of_class[np.arange(len(values)), [of for _, of in values]] = [value for value, _ in values]
    base = np.full(classes, -np.inf)
    base[met] = 0.0
    whole: dict[str, Any] = {
        name: np.array(columns[name], dtype=np.int64) for name in ("feature", "left", "right")
    }
    return TreesModel(
        np.array(roots, dtype=np.int64), threshold=np.array(columns["threshold"]), values=of_class,
        base=base, depth=depth, boosted=True, **whole,
    )  # fmt: skip
