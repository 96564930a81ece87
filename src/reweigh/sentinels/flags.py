"""Flags with a false-alarm rate: at most that share of the flagged labels is expected to be right.

Known-right rows j with suspicions s_j and weights w_j (as many rows as j stands for), a row i:

    p_i        (w_i + sum of w_j with s_j >= s_i) / (w_i + sum of w_j)
    right      an estimate of the share of right labels (Storey, 2002), at most 1:
               (1 + #{p_i > HALF}) / (n (1 - HALF))
    flagged    at rate q: the k rows of smallest p, k the largest with p_(k) <= q k / (n right)
               (Benjamini and Hochberg, 1995)
    from       the smallest q at which row i is flagged

p_i is a valid p-value of "this label is right" if right labels and known-right rows are treated alike and
the weights make up for how the known-right rows were chosen. Flags then hold the rate on average over
draws of the known-right rows (Bates et al., 2023); in a single run the share of false ones varies.

The smallest p is about 1 / (1 + m): with m known-right rows, a share f of flagged rows needs

    m >= right / (q f) - 1
"""

from __future__ import annotations

import math

import numpy as np

from ..candidates import Reals

HALF = 0.5


def p_values(
    suspicion: Reals,
    weights: Reals,
    known: Reals,
    known_weights: Reals,
    own: Reals | float = 0.0,
) -> Reals:
    """[n] of rows with `suspicion` and `weights` [n], against known-right rows [m].

    own    [n] the weight of a row that is itself among the known-right ones: it is held against the others
    """
    order = np.argsort(known)
    above = np.concatenate([np.cumsum(known_weights[order][::-1])[::-1], [0.0]])
    at_least = above[np.searchsorted(known[order], suspicion, side="left")]
    p: Reals = (weights + at_least - own) / (weights + known_weights.sum() - own)
    return p


def right_share(p: Reals) -> float:
    """The share of right labels, from their p-values; never under-estimated on average."""
    return min(1.0, (1 + int((p > HALF).sum())) / (len(p) * (1 - HALF)))


def flagged_from(p: Reals, right: float = 1.0) -> Reals:
    """[n] the smallest false-alarm rate at which each row is flagged; 1 at most."""
    order = np.argsort(p, kind="stable")
    each = p[order] * right * len(p) / np.arange(1, len(p) + 1)
    lowest = np.minimum.accumulate(each[::-1])[::-1]
    rates = np.empty(len(p))
    rates[order] = np.minimum(lowest, 1.0)
    return rates


def rate_at(p: Reals, rates: Reals, asked: Reals) -> Reals:
    """The rates that p-values `asked` would have among rows with p-values `p` and `rates`."""
    order = np.argsort(p)
    after = np.concatenate([rates[order], [1.0]])
    found: Reals = after[np.searchsorted(p[order], asked, side="left")]
    return found


def needed(wrong: float, rate: float, right: float = 1.0) -> int:
    """How many known-right rows it takes to flag a share `wrong` of all rows at this rate."""
    return math.ceil(right / (rate * max(wrong, 1e-9)) - 1)
