"""Which candidate is kept: the steadiest, unless another is ahead by more than two standard errors.

    right_c    [m] the share of right judgements of candidate c on each row
    ahead      mean of right_c - right_steady, on the rows that both were judged on; its standard error
               is that of these differences
    chosen     of those that are ahead by more than CLEARLY standard errors, the one furthest ahead;
               the steadiest, if there is none

The best of several on few rows is best by luck as well. So the rows must speak against the steadiest,
rather than for the luckiest. The usual form of this rule, "the simplest within one standard error of
the best", lets candidates in *because* their difference is uncertain: one unlike all others, judged
on few rows, is always within one. Two errors, not one: of a dozen, one is ahead by one error in
most runs, by luck alone.

Accuracies and their intervals are those of expectation.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .expectation import expect
from .learner import Places, Reals

CLEARLY = 2.0


@dataclass(frozen=True)
class Figures:
    """Of one candidate. `per_class` is the recall of each class, None where no row has it."""

    accuracy: float
    interval: float
    balanced_accuracy: float
    macro_f1: float
    per_class: tuple[float | None, ...]


def figures(right: Reals, counts: npt.NDArray[np.int64], easy: Reals | None = None) -> Figures:
    """From the rows' shares of right judgements [m], the confusion (true, predicted), and how easy each row is."""
    worth = expect(right, easy)
    assert worth.interval is not None, "an accuracy has one"
    hits, truths, taken = np.diag(counts), counts.sum(1), counts.sum(0)
    present = truths > 0
    recall = np.divide(hits, truths, out=np.zeros(len(hits)), where=present)
    f1 = np.divide(2 * hits, truths + taken, out=np.zeros(len(hits)), where=truths + taken > 0)
    return Figures(
        worth.figure,
        worth.interval,
        float(recall[present].mean()),
        float(f1[present].mean()),
        tuple(float(r) if there else None for r, there in zip(recall, present, strict=True)),
    )


def choose(rights: Mapping[str, Reals], steady: Sequence[str]) -> str:
    """The first of `steady` that is there, unless another is clearly ahead."""
    steadiest = next(name for name in (*steady, *rights) if name in rights)
    found, furthest = steadiest, 0.0
    for name, right in rights.items():
        ahead, error = lead(right, rights[steadiest])
        if ahead > max(CLEARLY * error, furthest):
            found, furthest = name, ahead
    return found


def lead(right: Reals, other: Reals) -> tuple[float, float]:
    """How far one is ahead of another, and the standard error of that; on rows that judged both."""
    differences = (right - other)[~np.isnan(right - other)]
    if len(differences) < 2:
        return 0.0, np.inf
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def honest_right(
    rights: Mapping[str, Reals], steady: Sequence[str], parts: Sequence[Places]
) -> Reals:
    """[m] what a choice gets right: made on all parts but one, judged on that one.

    The chosen candidate's own figure flatters it: it was chosen for doing well on these rows. Where the other
    parts did not judge the steadiest, nothing speaks against it, and it is the choice.
    """
    found = np.full(len(next(iter(rights.values()))), np.nan)
    steadiest = next(name for name in (*steady, *rights) if name in rights)
    for part in parts:
        others = {n: np.delete(right, part) for n, right in rights.items()}
        known = {n: right for n, right in others.items() if not np.isnan(right).all()}
        chosen = choose(known, steady) if steadiest in known else steadiest
        found[part] = rights[chosen][part]
    return found
