"""How a label fares while a plain model is trained: loss, margin and predictions over the steps.

A softmax regression learns by STEPS steps of gradient descent from zero, of rate RATE classes / mean |x|^2. With
p_t what it says of a row at step t, for a row under label g:

    loss      - mean over t of log p_t(g)
    margin    largest mean of log p_t(c), c != g, less that of g     (Pleiss et al., 2020, up to the sign)
    against   log of (steps that predict another class + 1/2) / (steps that predict g + 1/2)

Wrong labels are learnt late, so all three are large. Like the witnesses, it has not learnt the rows that it
is asked about: a checked row can then be asked about under every label.

(Watching the very rows that are learnt ranks images .01 better. But a known-wrong copy of a checked row would then
have to be learnt as well. Adding its own pull to what the others teach, to first order, gave copies that
looked less suspicious than right rows.)

Cost: 2 STEPS passes over the rows and STEPS over those that are asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..candidates import Places, PlainData, Reals, Rows, one_hot

STEPS, RATE = 200, 4.0
NAMES = ("loss", "margin", "against")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Of some rows, [k, classes] each: mean of log p over the steps; share of steps that predict a class."""

    log_p: Reals
    predicted: Reals

    def under(self, rows: Places, labels: Places) -> Reals:
        """[k, 3] loss, margin and against of rows under labels."""
        each, others = np.arange(len(rows)), self.log_p[rows]
        of_label = others[each, labels].copy()
        others[each, labels] = -np.inf
        agreed = STEPS * self.predicted[rows, labels]
        against = np.log((STEPS - agreed + 0.5) / (agreed + 0.5))
        return np.stack([-of_label, others.max(1) - of_label, against], axis=1)

    @classmethod
    def empty(cls, rows: int, classes: int) -> Dynamics:
        """Of rows that are still to be asked about."""
        return cls(np.zeros((rows, classes)), np.zeros((rows, classes)))

    def put(self, places: Places, found: Dynamics) -> None:
        """Fill in what was found of some rows."""
        self.log_p[places], self.predicted[places] = found.log_p, found.predicted


def watch_training(data: PlainData, train: Places, checked: Places) -> Callable[[Rows], Dynamics]:
    """Train on some train and checked rows; then other rows can be asked about."""
    x = _with_one(
        np.concatenate([data.features["train"][train], data.features["checked"][checked]])
    )
    labels = np.concatenate([data.given[train], data.labels[checked]])
    y = one_hot(labels, data.classes).astype(np.float32)
    rate = RATE * data.classes / float((x**2).sum(1).mean()) / len(x)
    path = np.zeros((STEPS, x.shape[1], data.classes), np.float32)
    for before, after in pairwise(path):
        after[:] = before + rate * (x.T @ (y - np.exp(_log_softmax(x @ before))))

    def ask(rows: Rows) -> Dynamics:
        found, some = Dynamics.empty(len(rows), data.classes), _with_one(rows)
        each = np.arange(len(rows))
        for weights in path:
            log_p = _log_softmax(some @ weights)
            found.log_p[:] += log_p / STEPS
            found.predicted[each, log_p.argmax(1)] += 1 / STEPS
        return found

    return ask


def _with_one(rows: Rows) -> Rows:
    rows = np.asarray(rows, dtype=np.float32)
    return np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)


def _log_softmax(z: Rows) -> Rows:
    z = z - z.max(1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))
