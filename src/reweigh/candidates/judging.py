"""How good candidates are, judged by the checked rows; no row judges a model that learnt from it.

    folds      the checked rows dealt into K parts, class by class; dealt anew for each repeat
    judged     each row by the model fitted without its part: probabilities [repeats, m, classes]
    variant    of a candidate with several (rounds of the posterior, strengths): the one with the
               highest log-likelihood of the checked rows. What judges a part is chosen by the others.
    right      [m] the share of a row's judgements that were right; NaN where there is none

In a regression a judgement is a number, classes is 1, and in place of the log-likelihood and of the
share of right ones stands minus the squared error.

A candidate that learns nothing from the checked rows is fitted once and judged on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..rng import Draws
from .learner import Labels, Places, Reals, are_numbers

FOLDS = 5
FEW = 100
"""Under this many checked rows, the folds are dealt twice."""
LEAST = 1e-6  # of a probability in a log-likelihood

Folds: TypeAlias = Sequence[Places]
"""One entry per part: the positions of its rows."""


class Model(Protocol):
    """A fitted candidate, which knows the rows of the run by the name of their part."""

    def probabilities(self, part: str, places: Places | None = None) -> Reals:
        """[k, classes] for rows of "train", "checked", "validation" or "test"; all of them without `places`."""
        ...


class Candidate(Protocol):
    """A way from the user's rows to a model.

    name       one word for it;  title  some words
    learns     whether it learns from the checked rows
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def learns(self) -> bool: ...  # noqa: D102

    def fit(self, checked: Places) -> Sequence[Model]:
        """Its variants, which may know these checked rows and no other ones, in any role."""
        ...


def deal(labels: Labels, *, parts: int, repeats: int, seed: int) -> list[Folds]:
    """For each repeat the parts; every class, or range of numbers, is spread evenly over them."""
    dealt: list[Folds] = []
    if are_numbers(labels):
        labels = labels.argsort(kind="stable").argsort(kind="stable") // parts
    for repeat in range(repeats):
        order = Draws(seed, "folds", repeat).permutation(len(labels))
        by_class = order[np.argsort(labels[order], kind="stable")]
        dealt.append([np.sort(by_class[k::parts]) for k in range(parts)])
    return dealt


def usual_folds(labels: Labels, *, seed: int) -> list[Folds]:
    """Five parts, fewer if there are fewer rows; dealt twice where rows are few."""
    parts = max(2, min(FOLDS, len(labels) // 2))
    return deal(labels, parts=parts, repeats=2 if len(labels) < FEW else 1, seed=seed)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the checked rows say of a candidate.

    probabilities   [repeats, m, classes] of the variant that the other rows chose; NaN if not judged
    variant         the one that all rows choose
    """

    name: str
    probabilities: Reals
    variant: int

    def right(self, labels: Labels) -> Reals:
        """[m] the share of right judgements, or minus the squared error; NaN where there is none."""
        known = ~np.isnan(self.probabilities[:, :, 0])
        if are_numbers(labels):
            hits = np.where(known, agreement(np.nan_to_num(self.probabilities), labels), 0)
        else:
            hits = (np.nan_to_num(self.probabilities).argmax(2) == labels) & known
        counts = known.sum(0)
        shares: Reals = np.where(counts > 0, hits.sum(0) / np.maximum(counts, 1), np.nan)
        return shares


Tell: TypeAlias = Callable[[int, int], None]
"""Called with the number of fits that are done, and of all."""


def judge(
    candidate: Candidate,
    labels: Labels,
    folds: Sequence[Folds],
    *,
    classes: int,
    most: int | None = None,
    tell: Tell = lambda done, total: None,
) -> Judgement:
    """Fit without each part in turn and judge on it; at most `most` fits, in the order of `folds`."""
    m = len(labels)
    if not candidate.learns:
        models = candidate.fit(np.arange(0))
        each = np.stack([model.probabilities("checked") for model in models])[:, None]
        return _chosen(candidate.name, np.repeat(each, len(folds), axis=1), labels, folds)
    total = min(sum(map(len, folds)), most or sum(map(len, folds)))
    said: Reals | None = None
    parts = [(repeat, part) for repeat, dealt in enumerate(folds) for part in dealt][:total]
    for done, (repeat, part) in enumerate(parts):
        tell(done, total)
        models = candidate.fit(np.setdiff1d(np.arange(m), part))
        if said is None:
            said = np.full((len(models), len(folds), m, classes), np.nan)
        for variant, model in enumerate(models):
            said[variant, repeat, part] = model.probabilities("checked", part)
    tell(total, total)
    assert said is not None, "there is a part"
    return _chosen(candidate.name, said, labels, folds)


def judge_once(
    candidate: Candidate,
    labels: Labels,
    folds: Sequence[Folds],
    *,
    checked: int,
    part: str = "test",
) -> Judgement:
    """Fit to all checked rows and judge on the rows of `part`, whose labels and folds are given."""
    models = candidate.fit(np.arange(checked))
    said = np.stack([model.probabilities(part) for model in models])[:, None]
    return _chosen(candidate.name, said, labels, folds)


def _chosen(name: str, said: Reals, labels: Labels, folds: Sequence[Folds]) -> Judgement:
    """`said` [variants, repeats, m, classes] as a judgement."""
    likely = agreement(said, labels)  # [variants, repeats, m]
    judged = np.full(said.shape[1:], np.nan)
    for repeat, dealt in enumerate(folds):
        for part in dealt:
            others = np.delete(np.nansum(likely, axis=1), part, axis=1).sum(1)
            judged[repeat, part] = said[int(others.argmax()), repeat, part]
    return Judgement(name, judged, int(np.nansum(likely, axis=(1, 2)).argmax()))


def agreement(said: Reals, labels: Labels) -> Reals:
    """The log-likelihood of classes, minus the squared error of numbers; [..., m] of [..., m, classes]."""
    if are_numbers(labels):
        return np.asarray(-((said[..., 0] - labels) ** 2))
    return log_likelihood(said, labels)


def log_likelihood(said: Reals, labels: Places) -> Reals:
    """log p of the true label, for each row of [..., m, classes]; NaN where nothing was said."""
    of_truth = np.take_along_axis(said, np.broadcast_to(labels, said.shape[:-1])[..., None], -1)
    logs: Reals = np.log(np.maximum(of_truth[..., 0], LEAST))
    return logs


def confusion(judgement: Judgement, labels: Places, classes: int) -> npt.NDArray[np.int64]:
    """[classes, classes] true against predicted, over all judgements."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    for said in judgement.probabilities:
        known = ~np.isnan(said[:, 0])
        np.add.at(counts, (labels[known], said[known].argmax(1)), 1)
    return counts
