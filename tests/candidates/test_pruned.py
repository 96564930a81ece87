"""Pruned rows: those whose label is not the most probable one are not learnt; the others are, as labelled."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from reweigh.candidates import PlainData
from reweigh.candidates.plain import on_pruned


class Source:
    """A posterior that is given."""

    def __init__(self, q):
        self.q = np.array(q)

    def rounds(self, data, checked):
        return [SimpleNamespace(q=self.q)]


class Recorder:
    """A learner that shows what it was given."""

    name = "recorder"

    def fit(self, rows, labels, weights, *, start=None):
        return rows[:, 0].tolist(), labels.argmax(1).tolist(), weights.tolist()


def test_rows_are_kept_by_the_mean_of_the_posteriors():
    train, checked = np.arange(6.0)[:, None], np.array([[10.0], [11.0], [12.0]])
    data = PlainData(
        {"train": train, "checked": checked}, np.array([0, 0, 0, 1, 1, 1]), np.array([1, 0, 1]), 2
    )
    # of class 0, by two sources; their means are .8, .4, .55, .1, .6, .45
    first, second = [0.9, 0.3, 0.2, 0.1, 0.9, 0.6], [0.7, 0.5, 0.9, 0.1, 0.3, 0.3]
    sources = [Source([[p, 1 - p] for p in each]) for each in (first, second)]
    ((rows, labels, weights),) = on_pruned(Recorder(), sources)(data, np.array([0, 2]))
    assert rows == [0.0, 2.0, 3.0, 5.0, 10.0, 12.0]
    assert labels == [0, 0, 1, 1, 1, 1]
    assert weights == [1.0] * 6  # 4 train rows, 2 checked ones: max(1, 4 / (2 * 2))
    ((_, _, weights),) = on_pruned(Recorder(), sources)(data, np.array([1]))
    assert weights == [1.0] * 4 + [2.0]
