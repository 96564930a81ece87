"""Trees as plain arrays, from scikit-learn's forests and boosted trees.

Node k of all trees:   go on at left[k] if row[feature[k]] <= threshold[k], else at right[k].
A leaf leads to itself, so that every row takes `depth` steps, and ends with values[leaf, classes].

    forest     probabilities = mean over trees of values
    boosting   probabilities = softmax(base + sum over trees of values)

With one column of values it is a regression: the mean, or the sum, is the number itself.

scikit-learn keeps such models as pickles, which run code when loaded; these arrays do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .learner import Arrays, Fitted, Places, Reals, Rows

ROWS_A_BIN, BINS = 20, (32, 255)
"""Thresholds that boosting looks at: with weights, finding 255 for few rows takes longer than the trees."""
AT_ONCE = 2_000_000
"""Rows times trees that are followed at a time."""


@dataclass(frozen=True, eq=False)
class TreesModel:
    """roots [trees]; the nodes [nodes] and values [nodes, classes] of all trees; base [classes].

    boosted    values are added up and put through a softmax; else they are averaged
    """

    roots: Places
    feature: Places
    threshold: Reals
    left: Places
    right: Places
    values: Reals
    base: Reals
    depth: int
    boosted: bool
    kind: str = "trees"

    def probabilities(self, rows: Rows) -> Reals:
        """[n, classes]."""
        size = max(1, AT_ONCE // max(1, len(self.roots)))
        parts = [self._of(rows[start : start + size]) for start in range(0, len(rows), size)]
        return np.concatenate([np.empty((0, len(self.base))), *parts])

    def _of(self, rows: npt.NDArray[Any]) -> Reals:
        place = np.tile(self.roots, (len(rows), 1))
        each = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            low = rows[each, self.feature[place]] <= self.threshold[place]
            place = np.where(low, self.left[place], self.right[place])
        total = np.zeros((len(rows), len(self.base)))
        for tree in range(place.shape[1]):
            total += self.values[place[:, tree]]
        if len(self.base) == 1:
            return total + self.base if self.boosted else total / len(self.roots)
        if self.boosted:
            from scipy.special import softmax

            scores: Reals = softmax(total + self.base, axis=1)
            return scores
        return normalised(total / len(self.roots))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Thresholds keep their 64 bits: a row may lie right on one."""
        return {
            "roots": self.roots.astype(np.int32),
            "feature": self.feature.astype(np.int32),
            "threshold": self.threshold,
            "left": self.left.astype(np.int32),
            "right": self.right.astype(np.int32),
            "values": self.values.astype(np.float32),
            "base": self.base,
            "depth": np.array([self.depth, int(self.boosted)], dtype=np.int64),
        }

    @classmethod
    def of(cls, arrays: Arrays) -> TreesModel:
        """The model with these arrays."""
        whole: dict[str, Any] = {
            n: arrays[n].astype(np.int64) for n in ("roots", "feature", "left", "right")
        }
        depth, boosted = (int(number) for number in arrays["depth"])
        return cls(
            **whole,
            threshold=arrays["threshold"],
            values=arrays["values"].astype(np.float64),
            base=arrays["base"],
            depth=depth,
            boosted=bool(boosted),
        )


def normalised(values: Reals) -> Reals:
    """Rows that sum to one; one of zeros becomes even."""
    positive = np.maximum(values, 0) + 1e-9
    shares: Reals = positive / positive.sum(1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Forest:
    """A random forest; `least` rows in a leaf."""

    trees: int = 100
    least: int = 2
    seed: int = 0
    name: str = "random forest"

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> TreesModel:
        """Regression trees on the soft labels: their squared error is Gini's impurity."""
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            self.trees, max_features="sqrt", min_samples_leaf=self.least, random_state=self.seed
        )
        learnt = labels[:, 0] if labels.shape[1] == 1 else labels
        return _from_forest(forest.fit(rows, learnt, sample_weight=weights), labels.shape[1])


def _from_forest(forest: Any, classes: int) -> TreesModel:
    trees = [estimator.tree_ for estimator in forest.estimators_]
    first = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])[:-1]])
    joined: dict[str, list[Any]] = {"feature": [], "threshold": [], "left": [], "right": []}
    for tree, shift in zip(trees, first.tolist(), strict=True):
        here = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        joined["feature"].append(np.where(leaf, 0, tree.feature))
        joined["threshold"].append(np.where(leaf, 0.0, tree.threshold))
        joined["left"].append(np.where(leaf, here, tree.children_left) + shift)
        joined["right"].append(np.where(leaf, here, tree.children_right) + shift)
    nodes: dict[str, Any] = {name: np.concatenate(parts) for name, parts in joined.items()}
    values = np.concatenate([tree.value.reshape(-1, classes) for tree in trees])
    deepest = max(tree.max_depth for tree in trees)
    return TreesModel(
        first.astype(np.int64), **nodes, values=values, base=np.zeros(classes), depth=deepest,
        boosted=False,
    )  # fmt: skip


@dataclass(frozen=True)
class Boosting:
    """scikit-learn's histogram gradient boosting. A soft label counts as several rows with weights."""

    rounds: int = 80
    rate: float = 0.1
    leaves: int = 16
    least: int = 5
    seed: int = 0
    name: str = "gradient boosting"

    def fit(
        self, rows: Rows, labels: Reals, weights: Reals, *, start: Fitted | None = None
    ) -> TreesModel:
        """The model."""
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        settings: dict[str, Any] = {
            "max_iter": self.rounds, "learning_rate": self.rate, "max_leaf_nodes": self.leaves,
            "min_samples_leaf": self.least, "random_state": self.seed, "early_stopping": False,
            "max_bins": int(np.clip(len(rows) // ROWS_A_BIN, *BINS)),
        }  # fmt: skip
        if labels.shape[1] == 1:
            numbers = HistGradientBoostingRegressor(**settings)
            return _from_boosting(numbers.fit(rows, labels[:, 0], sample_weight=weights), 1)
        booster = HistGradientBoostingClassifier(**settings)
        row, label, counts = weighted_rows(labels, weights)
        if len(np.unique(label)) == 1:
            return constant(int(label[0]), labels.shape[1])
        booster.fit(rows[row], label, sample_weight=counts)
        return _from_boosting(booster, labels.shape[1])


def weighted_rows(labels: Reals, weights: Reals) -> tuple[Places, Places, Reals]:
    """Soft labels as hard ones: of each the row, the class and its weight; shares under 5% are dropped."""
    row, label = np.nonzero(labels > 0.05)
    return row, label, (weights[:, None] * labels)[row, label]


def constant(label: int, classes: int) -> TreesModel:
    """Where only one class is known: always that one."""
    nothing = np.zeros(1, dtype=np.int64)
    base = np.where(np.arange(classes) == label, 0.0, -np.inf)
    values = np.zeros((1, classes))
    return TreesModel(
        nothing, nothing, np.zeros(1), nothing, nothing, values, base, 0, boosted=True
    )


def _from_boosting(booster: Any, classes: int) -> TreesModel:
    present = booster.classes_.astype(np.int64) if classes > 1 else np.zeros(1, dtype=np.int64)
    sizes: list[int] = []
    parts: dict[str, list[Any]] = {
        n: [] for n in ("feature", "threshold", "left", "right", "values")
    }
    for stage in booster._predictors:
        for k, predictor in enumerate(stage):
            nodes, shift = predictor.nodes, sum(sizes)
            leaf = nodes["is_leaf"].astype(bool)
            here = np.arange(len(nodes)) + shift
            parts["feature"].append(np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64))
            parts["threshold"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
            parts["left"].append(np.where(leaf, here, nodes["left"].astype(np.int64) + shift))
            parts["right"].append(np.where(leaf, here, nodes["right"].astype(np.int64) + shift))
            values = np.zeros((len(nodes), classes))
            # Of two classes there is one tree a round: the log-odds of the second.
            values[:, present[-1] if len(present) == 2 else present[k]] = np.where(
                leaf, nodes["value"], 0
            )
            parts["values"].append(values)
            sizes.append(len(nodes))
    base = np.full(classes, -np.inf)
    start = np.ravel(booster._baseline_prediction)
    base[present] = [0.0, float(start[0])] if len(present) == 2 else start
    depth = max(p.get_max_depth() for stage in booster._predictors for p in stage)
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    joined: dict[str, Any] = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return TreesModel(roots, **joined, base=base, depth=depth, boosted=True)
