"""The posterior of a label: what a row's true class may be, from its features and its given label.

    T[y, g]    how often true y is called g; each row sums to one
    p_i(y)     what a model says of row i, not having learnt from its label
    q_i(y)     proportional to p_i(y) T[y, given_i]

    start      p from the checked rows alone; q = p
    T          T[y, g] = (sum over rows called g of q_i(y) + 1/2 + [y = g]) / its row's sum
    a round    T from q, q from T: once in the first round, in later ones until they settle; then
               the model learns all rows with soft labels q, and the checked rows with their labels

T and q in turn are expectation maximisation, with the model as the prior of each row; the added counts
keep T near "labels are right" where nothing else is known. Checked rows are never in q: their labels
are known. It holds as far as errors depend on the true class alone. Where they depend on the row,
many rounds drift away from the truth: how many are right is for the checked rows to say.

A row counts 1; a checked one max(1, n / 2m), so that m checked rows weigh at least half of n others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .learner import Fitted, Learner, Places, Reals, Rows, one_hot

SMOOTH, FAITH = 0.5, 1.0
"""Added to each entry of T's counts, and to its diagonal besides."""
SETTLED, MOST = 1e-4, 50
"""T and q have settled when no entry of T moves by more; they are found at most so many times."""


def transitions(q: Reals, given: Places) -> Reals:
    """T [classes, classes] from soft truths q [n, classes] and given labels [n]."""
    classes = q.shape[1]
    counts = np.zeros((classes, classes))
    np.add.at(counts.T, given, q)
    counts += SMOOTH + FAITH * np.eye(classes)
    transition: Reals = counts / counts.sum(1, keepdims=True)
    return transition


def posterior(p: Reals, transition: Reals, given: Places) -> Reals:
    """q [n, classes], proportional to p_i(y) T[y, given_i]."""
    joint = np.maximum(p, 1e-12) * transition[:, given].T
    q: Reals = joint / joint.sum(1, keepdims=True)
    return q


def settle(p: Reals, given: Places, *, most: int = MOST) -> tuple[Reals, Reals]:
    """T and q from each other until they settle, from q = p; the model's p stays as it is."""
    transition = transitions(p, given)
    for _ in range(most - 1):
        before, transition = transition, transitions(posterior(p, transition, given), given)
        if np.abs(transition - before).max() < SETTLED:
            break
    return transition, posterior(p, transition, given)


@dataclass(frozen=True, eq=False)
class Round:
    """A model, and what it and the given labels say of the train rows, [n, classes] each."""

    model: Fitted
    q: Reals
    transition: Reals


def checked_weight(train: int, checked: int) -> float:
    """What a checked row counts beside train rows that count 1."""
    return max(1.0, train / (2 * checked))


def posterior_rounds(
    learner: Learner,
    first: Learner,
    train: Rows,
    given: Places,
    checked: Rows,
    labels: Places,
    *,
    classes: int,
    rounds: int,
    counts: Reals | None = None,
) -> Iterator[Round]:
    """Round after round; each learns from the one before. `first` learns from the checked rows.

    counts    [n] what each train row counts; 1 each without

    What a model says of rows it has learnt stands for what it says of others, so for more than one
    round the learner must be held back by a penalty, as a regression is: a forest repeats its labels.
    (Fits to two thirds of the rows, judging the rest, gave a regression no better posteriors.)
    """
    known = one_hot(labels, classes)
    joined = np.concatenate([train, checked])
    n, m = len(given), len(labels)
    counts = np.ones(n) if counts is None else counts
    weights = np.concatenate([counts, np.full(m, checked_weight(n, m))])
    p = first.fit(checked, known, np.ones(m)).probabilities(train)
    model: Fitted | None = None
    for number in range(rounds):
        transition, q = settle(p, given, most=MOST if number else 1)
        soft = np.concatenate([q, known])
        model = learner.fit(joined, soft, weights, start=model)
        p = model.probabilities(train) if number < rounds - 1 else p
        yield Round(model, q, transition)
