"""How many labels can be wrong at least, and at most, whatever errors depend on.

h is a prediction made without the row. On train rows it is held against the given label g, on checked rows
against the truth y. The triangle inequality then bounds how often g differs from y:

    | P(g != h) - P(h != y) |  <=  P(g != y)  <=  P(g != h) + P(h != y)

and in the same way for the rows called c, and for those of class d called c:

    P(g = c, y != c)  >=  P(g = c, h != c) - P(y = c, h != c),   P(h = c, y != c) - P(h = c, g != c)
    P(g = c, y != c)  <=  P(g = c, h != c) + P(h = c, y != c)
    P(g = c, y = d)   >=  P(g = c, h = d) - P(h = d, y != d)
    P(g = c, y = d)   <=  P(g = c, h = d) + P(h != d, y = d)

Nothing is supposed about errors: where h is good the bounds are close, and where it is poor they are far
apart, as nobody can know. Checked rows are few, so P(h, y) is drawn by the Bayesian bootstrap, with half a row
right and half a row wrong added, as in Jeffreys' interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals
from ..rng import Draws


@dataclass(frozen=True, eq=False)
class Bounds:
    """given [g, h] shares of the train rows; true [b, y, h] shares of the checked rows in bootstraps."""

    given: Reals
    true: Reals

    def errors(self, given: int | None = None, true: int | None = None) -> tuple[float, float]:
        """The 95% interval of the share of all rows that are wrong; called `given`; of one pair."""
        least, most = self._each(given, true)
        low, high = float(np.quantile(least, 0.025)), float(np.quantile(most, 0.975))
        return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)

    def _each(self, c: int | None, d: int | None) -> tuple[Reals, Reals]:
        """[b] the bounds in each bootstrap."""
        if c is None:
            called = 1 - np.trace(self.given)
            missed = 1 - np.trace(self.true, axis1=1, axis2=2)
            return np.abs(called - missed), called + missed
        if d is not None:
            both, seen = self.given[c, d], self.true
            false = seen[:, :, d].sum(1) - seen[:, d, d]
            overlooked = seen[:, d].sum(1) - seen[:, d, d]
            return both - false, np.minimum(both + overlooked, self.given[c].sum())
        doubted = self.given[c].sum() - self.given[c, c]
        unsaid = self.given[:, c].sum() - self.given[c, c]
        false = self.true[:, :, c].sum(1) - self.true[:, c, c]
        overlooked = self.true[:, c].sum(1) - self.true[:, c, c]
        least = np.maximum(doubted - overlooked, false - unsaid)
        return least, np.minimum(doubted + false, self.given[c].sum())


def bound_errors(
    predicted: Places,
    given: Places,
    predicted_checked: Places,
    labels: Places,
    weights: Reals,
    classes: Reals,
    *,
    seed: int,
) -> Bounds:
    """From predictions of train and checked rows; `weights` [b, m] bootstraps of the checked rows.

    classes    [b, y] the share of each class: checked rows may have been chosen by class
    """
    from scipy.stats import gamma

    count = classes.shape[1]
    called = np.zeros((count, count))
    np.add.at(called, (given, predicted), 1 / len(given))
    held = np.stack([weights[:, labels == y].sum(1) for y in range(count)], axis=1)
    each = weights * (classes / np.maximum(held, 1e-9))[:, labels]
    found = np.zeros((len(weights), count, count))
    for row, (y, h) in enumerate(zip(labels, predicted_checked, strict=True)):
        found[:, y, h] += each[:, row]
    found /= np.maximum(found.sum((1, 2), keepdims=True), 1e-9)
    uniform = np.clip(Draws(seed, "half a row").uniform(2 * len(weights)), 1e-9, 1 - 1e-9)
    right, wrong = gamma.ppf(uniform, 0.5).reshape(2, -1, 1, 1)
    same = np.eye(count) / count
    other = (1 - np.eye(count)) / max(count * (count - 1), 1)
    m = len(labels)
    return Bounds(called, (m * found + right * same + wrong * other) / (m + right + wrong))
