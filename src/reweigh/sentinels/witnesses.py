"""Witnesses: models that say of a row what its class may be, fitted without that row.

    linear, forest         learn all rows as they are labelled, and the checked rows, which count more
    corrected_linear,      learn the train rows with the posterior of their labels, and the checked rows
    corrected_forest       (candidates/posterior.py): these say what the true class is
    neighbours             the labels of the NEAREST rows: (count + 1/2) / (sum + classes / 2), by cosine
                           of the centred features

A forest is for tables. Of many rows, the neighbours are looked for among MOST_NEIGHBOURS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..candidates import (
    Fitted,
    Forest,
    Learner,
    Places,
    PlainData,
    Reals,
    Rows,
    SoftmaxRegression,
    checked_weight,
    one_hot,
    posterior_rounds,
)
from .dynamics import Dynamics, watch_training

NEAREST, MOST_NEIGHBOURS, AT_ONCE = 20, 5000, 1000
ROUNDS = 2
"""Of the posterior under a linear model."""
FIRM = 10.0
"""Strength of a regression on the checked rows alone; texts and images."""
TREES = 50
Says = Callable[[Rows], Reals]
"""Rows [k, width] -> probabilities [k, classes]."""
Witness = Callable[[PlainData, Places, Places], Says]
"""From the data, the places of train rows and those of checked rows that may be learnt."""


def usual_witnesses(*, trees: bool) -> dict[str, Witness]:
    """By name; `trees`: columns of a table. Those called corrected_... speak of the true class."""
    linear = SoftmaxRegression()
    found: dict[str, Witness] = {
        "linear": _labelled(linear),
        "corrected_linear": _corrected(linear, SoftmaxRegression(1.0 if trees else FIRM), ROUNDS),
        "neighbours": _neighbours,
    }
    if trees:
        forest = Forest(TREES)
        found |= {"forest": _labelled(forest), "corrected_forest": _corrected(forest, forest, 1)}
    return found


def _labelled(learner: Learner) -> Witness:
    def fit(data: PlainData, train: Places, checked: Places) -> Says:
        rows = np.concatenate([data.features["train"][train], data.features["checked"][checked]])
        labels = np.concatenate([data.given[train], data.labels[checked]])
        n, m = len(train), len(checked)
        weights = np.concatenate([np.ones(n), np.full(m, checked_weight(n, m))])
        return learner.fit(rows, one_hot(labels, data.classes), weights).probabilities

    return fit


def _corrected(learner: Learner, first: Learner, rounds: int) -> Witness:
    def fit(data: PlainData, train: Places, checked: Places) -> Says:
        last: Fitted | None = None
        for each in posterior_rounds(
            learner, first, data.features["train"][train], data.given[train],
            data.features["checked"][checked], data.labels[checked],
            classes=data.classes, rounds=rounds,
        ):  # fmt: skip
            last = each.model
        assert last is not None, "there is a round"
        return last.probabilities

    return fit


def _neighbours(data: PlainData, train: Places, checked: Places) -> Says:
    step = max(1, -(-len(train) // MOST_NEIGHBOURS))
    known = np.asarray(data.features["train"][train[::step]], dtype=np.float32)
    labels, centre = data.given[train[::step]], known.mean(0)
    unit = _unit(known - centre)
    count = min(NEAREST, len(known))

    def says(rows: Rows) -> Reals:
        found = np.full((len(rows), data.classes), 0.5)
        for start in range(0, len(rows), AT_ONCE):
            some = _unit(np.asarray(rows[start : start + AT_ONCE], dtype=np.float32) - centre)
            near = np.argpartition(-(some @ unit.T), count - 1, axis=1)[:, :count]
            for place, around in enumerate(labels[near], start):
                np.add.at(found[place], around, 1.0)
        shares: Reals = found / found.sum(1, keepdims=True)
        return shares

    return says


def _unit(rows: Rows) -> Rows:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True, eq=False)
class Testimony:
    """What the witnesses say, each of rows that it has not learnt.

    train      by name, [n, classes]
    checked    by name, [m, classes]
    folds      [m] the part of each checked row; train_folds [n] of each train row
    dynamics   how labels fare in training (dynamics.py), of train and of checked rows; None: not watched
    """

    train: Mapping[str, Reals]
    checked: Mapping[str, Reals]
    folds: Places
    train_folds: Places
    dynamics: tuple[Dynamics, Dynamics] | None = None

    @property
    def parts(self) -> int:
        """How many parts the rows were dealt into."""
        return int(self.folds.max()) + 1

    def truth(self) -> tuple[Reals, Reals]:
        """p(y | x) of train [n, classes] and checked rows: the mean of those that speak of the truth."""
        names = [name for name in self.train if name.startswith("corrected")]
        return (
            np.mean([self.train[name] for name in names], axis=0),
            np.mean([self.checked[name] for name in names], axis=0),
        )


def hear(
    data: PlainData,
    chosen: Mapping[str, Witness],
    folds: Places,
    train_folds: Places,
    *,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Testimony:
    """All witnesses, part by part. Train and checked rows of a part are treated alike: unseen."""
    train = {name: np.empty((len(data.given), data.classes)) for name in chosen}
    checked = {name: np.empty((len(data.labels), data.classes)) for name in chosen}
    fared = tuple(Dynamics.empty(len(rows), data.classes) for rows in (data.given, data.labels))
    parts = range(int(folds.max()) + 1)
    for part in parts:
        tell(part, len(parts))
        here, there = train_folds == part, folds == part
        rest = np.flatnonzero(~here), np.flatnonzero(~there)
        ask = watch_training(data, *rest)
        fared[0].put(here, ask(data.features["train"][here]))
        fared[1].put(there, ask(data.features["checked"][there]))
        for name, witness in chosen.items():
            says = witness(data, *rest)
            train[name][here] = says(data.features["train"][here])
            checked[name][there] = says(data.features["checked"][there])
    tell(len(parts), len(parts))
    return Testimony(train, checked, folds, train_folds, (fared[0], fared[1]))
