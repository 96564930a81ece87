"""Candidates made of a plain model: which rows it learns, and with which labels.

checked     the checked rows alone
all         all train rows as they are labelled
weighted    both; a checked row counts max(1, n / 2m)
corrected   both, the train rows with the posterior of their labels (posterior.py)
pruned      both, without the train rows whose given label is not the most probable by that posterior;
            in a regression, without those far from what the checked rows let one expect
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .learner import Fitted, Labels, Learner, Places, Reals, Rows, as_learnt, one_hot
from .posterior import Round, checked_weight, posterior_rounds

FAR = 2.5


@dataclass(frozen=True, eq=False)
class PlainData:
    """features by part, dense: "train", "checked", "test"; labels of the first two; how many classes.

    In a regression the labels are numbers, and classes is 1. `counts` [n]: what each train row counts, in
    the mean 1, as where its label's source is known; None: 1 each.
    """

    features: Mapping[str, Rows]
    given: Labels
    labels: Labels
    classes: int
    counts: Reals | None = None

    def row_counts(self) -> Reals:
        """[n]."""
        return np.ones(len(self.given)) if self.counts is None else self.counts


@dataclass(frozen=True, eq=False)
class PlainModel:
    """A fitted model and the rows it may be asked about."""

    fitted: Fitted
    data: PlainData

    def probabilities(self, part: str, places: Places | None = None) -> Reals:
        """[k, classes]."""
        rows = self.data.features[part]
        return self.fitted.probabilities(rows if places is None else rows[places])


@dataclass(frozen=True, eq=False)
class PlainCandidate:
    """`way` makes the variants: fitted models, from the data and the places of checked rows."""

    name: str
    title: str
    learns: bool
    data: PlainData
    way: Callable[[PlainData, Places], Sequence[Fitted]]

    def fit(self, checked: Places) -> Sequence[PlainModel]:
        """The variants."""
        return [PlainModel(fitted, self.data) for fitted in self.way(self.data, checked)]

    @property
    def corrects(self) -> bool:
        """Whether it has a posterior of labels."""
        return isinstance(self.way, Posteriors)

    def posterior(self, checked: Places, variant: int) -> Reals:
        """[n, classes] of the train rows, as that variant learnt them."""
        assert isinstance(self.way, Posteriors), "asked of one that corrects"
        return self.way.rounds(self.data, checked)[self.way.stops[variant] - 1].q


def joined(data: PlainData, checked: Places) -> Rows:
    """The train rows, then the checked rows at `checked`."""
    return np.concatenate([data.features["train"], data.features["checked"][checked]])


def weights(counts: Reals, checked: int) -> Reals:
    """What train rows with these counts count, and then each of so many checked ones."""
    return np.concatenate([counts, np.full(checked, checked_weight(len(counts), checked))])


def on_checked(learners: Sequence[Learner]) -> Callable[[PlainData, Places], list[Fitted]]:
    """The checked rows alone; one variant per learner."""

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        rows, labels = (
            data.features["checked"][checked],
            as_learnt(data.labels[checked], data.classes),
        )
        return [each.fit(rows, labels, np.ones(len(labels))) for each in learners]

    return fit


def on_all(learner: Learner) -> Callable[[PlainData, Places], list[Fitted]]:
    """The train rows as they are labelled."""

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        labels = as_learnt(data.given, data.classes)
        return [learner.fit(data.features["train"], labels, data.row_counts())]

    return fit


def on_both(learner: Learner) -> Callable[[PlainData, Places], list[Fitted]]:
    """Train rows as they are labelled, and checked rows that count more."""

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        labels = as_learnt(np.concatenate([data.given, data.labels[checked]]), data.classes)
        return [
            learner.fit(joined(data, checked), labels, weights(data.row_counts(), len(checked)))
        ]

    return fit


@dataclass(eq=False)
class Posteriors:
    """The rounds of the posterior under one learner; those of the last few folds are kept.

    stops    the rounds whose models are variants
    """

    learner: Learner
    first: Learner
    stops: tuple[int, ...]
    _kept: dict[bytes, list[Round]] = field(default_factory=dict)

    def rounds(self, data: PlainData, checked: Places) -> list[Round]:
        """All rounds, from the first."""
        key = checked.tobytes()
        if key not in self._kept:
            while len(self._kept) > 10:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = list(
                posterior_rounds(
                    self.learner, self.first, data.features["train"], data.given,
                    data.features["checked"][checked], data.labels[checked],
                    classes=data.classes, rounds=max(self.stops), counts=data.counts,
                )
            )  # fmt: skip
        return self._kept[key]

    def __call__(self, data: PlainData, checked: Places) -> list[Fitted]:
        """The models at the stops."""
        rounds = self.rounds(data, checked)
        return [rounds[stop - 1].model for stop in self.stops]


def on_corrected(
    learner: Learner, sources: Sequence[Posteriors]
) -> Callable[[PlainData, Places], list[Fitted]]:
    """Train rows with the mean of the sources' first posteriors, and checked rows that count more."""

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        q = np.mean([source.rounds(data, checked)[0].q for source in sources], axis=0)
        labels = np.concatenate([q, one_hot(data.labels[checked], data.classes)])
        return [
            learner.fit(joined(data, checked), labels, weights(data.row_counts(), len(checked)))
        ]

    return fit


def on_pruned(
    learner: Learner, sources: Sequence[Posteriors]
) -> Callable[[PlainData, Places], list[Fitted]]:
    """Train rows whose label is the most probable by those posteriors, and checked rows that count more."""

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        q = np.mean([source.rounds(data, checked)[0].q for source in sources], axis=0)
        kept = np.flatnonzero(q.argmax(1) == data.given)
        rows = np.concatenate([data.features["train"][kept], data.features["checked"][checked]])
        labels = np.concatenate([data.given[kept], data.labels[checked]])
        counts = weights(data.row_counts()[kept], len(checked))
        return [learner.fit(rows, one_hot(labels, data.classes), counts)]

    return fit


def on_near(learner: Learner) -> Callable[[PlainData, Places], list[Fitted]]:
    """A regression: train rows near to what the learner says after the checked rows alone, and those.

    Near is within FAR times the scale of all differences (1.4826 times their median).
    """

    def fit(data: PlainData, checked: Places) -> list[Fitted]:
        train, known = data.features["train"], data.features["checked"][checked]
        labels = as_learnt(data.labels[checked], data.classes)
        said = learner.fit(known, labels, np.ones(len(labels))).probabilities(train)[:, 0]
        off = np.abs(said - data.given)
        kept = np.flatnonzero(off <= FAR * 1.4826 * np.median(off))
        rows, given = np.concatenate([train[kept], known]), data.given[kept, None]
        counts = weights(data.row_counts()[kept], len(checked))
        return [learner.fit(rows, np.concatenate([given, labels]), counts)]

    return fit
