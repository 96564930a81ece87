"""A blend: a weighted mean of the candidates' probabilities; the judging rows give the weights.

Candidates of different kinds err on different rows, so a mean of them is better than each. With
y_i the label of judging row i, p_k what candidate k said of it without having seen it, K candidates:

    sharpness   s_k maximises   sum_i log p_k(y_i)^s / sum_y p_k(y)^s  -  (log s)^2 / (2 SPREAD^2)
    weights     w maximises     sum_i log sum_k w_k p_k(y_i)  +  PRIOR / K sum_k log w_k,   sum_k w_k = 1

The sharpness makes candidates comparable: a network is more certain of itself than a regression is,
and would decide alone. PRIOR is the weight, in rows, of "all are as good": few rows change little.
The second problem is concave, and expectation maximisation, which raises it in every turn, is

    r_ik = w_k p_k(y_i) / sum_l w_l p_l(y_i)          w_k = (PRIOR / K + sum_i r_ik) / (PRIOR + m)

A row that candidate k was not judged on counts with the weights of the others alone, divided by their
sum s_i; r_ik is then w_k / s_i for k (the draws that were in vain), and w is divided by its sum.

In a regression, where k says the number f_k, each is first moved by what it misses in the mean over its m rows,
as far as these can be believed; then y is normal around their weighted mean, v being the smallest mean squared
error of a candidate; this is concave, too:

    shift       d_k = m / (m + DOUBT) mean_i (y_i - f_k),   f_k + d_k in place of f_k
    weights     w maximises     - sum_i (y_i - sum_k w_k f_k)^2 / (2 v)  +  PRIOR_OF_NUMBERS / K sum_k log w_k

Numbers that are wrong to one side move every candidate that learnt them by about the same: the shift takes that
back, where weights alone could only leave the candidate out.

How good the blend is, is judged on each part of the rows by weights that the other parts gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .judging import LEAST, Folds, Judgement
from .learner import Labels, Places, Reals, are_numbers

BLEND = "blend"
PRIOR, SPREAD = 5.0, 0.5
PRIOR_OF_NUMBERS = 1.0
"""Less than of classes: a biased member moves a mean of numbers, where a vote of classes stays."""
DOUBT = 10.0
"""The weight, in rows, of "it misses nothing in the mean"."""
SMALLEST = 0.02
"""Members with less weight are left out: they cost time and change nothing."""
SETTLED, MOST = 1e-7, 5000


@dataclass(frozen=True)
class Member:
    """A candidate in the blend; the weights of all sum to one. `shift` is added to its numbers."""

    name: str
    weight: float
    sharpness: float
    shift: float = 0.0


@dataclass(frozen=True, eq=False)
class Blend:
    """What the judging rows say of it, each by weights that it had no part in; and its members."""

    judgement: Judgement
    members: tuple[Member, ...]


def sharpened(p: Reals, sharpness: float) -> Reals:
    """p^sharpness, as probabilities again; [..., classes]."""
    if sharpness == 1:
        return p
    powers = np.maximum(p, LEAST) ** sharpness
    shares: Reals = powers / powers.sum(-1, keepdims=True)
    return shares


def blend(judgements: Sequence[Judgement], labels: Labels, parts: Folds) -> Blend:
    """Of all candidates that were judged; `parts` are those of the first dealing, and cover all rows.

    Its judgement has one repeat. A row counts where all members were judged.
    """
    said = {each.name: each.probabilities for each in judgements}
    found = np.full((1, *next(iter(said.values())).shape[1:]), np.nan)
    for part in parts:
        others = np.setdiff1d(np.arange(len(labels)), part)
        members = _members({k: p[:, others] for k, p in said.items()}, labels[others])
        found[0, part] = mixed(members, {k: p[0, part] for k, p in said.items()})
    return Blend(Judgement(BLEND, found, 0), _members(said, labels))


def mixed(members: Sequence[Member], said: Mapping[str, Reals]) -> Reals:
    """The mean by weights, of the probabilities or numbers by name."""
    total = sum(member.weight for member in members)
    parts = (m.weight / total * (sharpened(said[m.name], m.sharpness) + m.shift) for m in members)
    return np.asarray(sum(parts))


def _members(said: Mapping[str, Reals], labels: Labels) -> tuple[Member, ...]:
    shifts = dict.fromkeys(said, 0.0)
    if are_numbers(labels):
        sharp = dict.fromkeys(said, 1.0)
        numbers = {name: _mean(p[..., 0]) for name, p in said.items()}
        shifts = {name: shift(each, labels) for name, each in numbers.items()}
        weights = mean_weights(np.stack([numbers[k] + shifts[k] for k in said]), labels)
    else:
        sharp = {name: sharpness(p, labels) for name, p in said.items()}
        likely = np.stack([_likely(sharpened(p, sharp[name]), labels) for name, p in said.items()])
        weights = mixture_weights(likely)
    weights = np.where(weights < SMALLEST, 0, weights)
    weights /= weights.sum()
    return tuple(
        Member(name, float(w), sharp[name], shifts[name])
        for name, w in zip(said, weights, strict=True)
        if w
    )


def _likely(p: Reals, labels: Places) -> Reals:
    """[m] probability of the label, the mean over repeats; NaN where there is none."""
    return _mean(_of_label(p, labels))


def _mean(of_label: Reals) -> Reals:
    """[m] over the repeats; NaN where there is none."""
    known = ~np.isnan(of_label)
    counts = known.sum(0)
    means: Reals = np.where(counts > 0, np.nansum(of_label, 0) / np.maximum(counts, 1), np.nan)
    return means


def _of_label(p: Reals, labels: Places) -> Reals:
    """[repeats, m]."""
    places = np.broadcast_to(labels, p.shape[:-1])[..., None]
    return np.asarray(np.take_along_axis(p, places, -1)[..., 0])


def sharpness(p: Reals, labels: Places) -> float:
    """s for probabilities [repeats, m, classes], NaN where nothing was said; a row counts once."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    known = ~np.isnan(p[..., 0])
    counts = known / np.maximum(known.sum(0), 1)  # [repeats, m]
    logs, count = np.log(np.maximum(p[known], LEAST)), counts[known]
    label = np.broadcast_to(labels, known.shape)[known]

    def objective(log_s: float) -> float:
        of_label = log_softmax(np.exp(log_s) * logs, axis=1)[np.arange(len(label)), label]
        return float(log_s**2 / (2 * SPREAD**2) - count @ of_label)

    return float(np.exp(minimize_scalar(objective, bounds=(-3, 3), method="bounded").x))


def mixture_weights(likely: Reals, *, prior: float = PRIOR) -> Reals:
    """w [K] from the probabilities of the labels [K, m], NaN where a candidate was not judged."""
    candidates = len(likely)
    known: npt.NDArray[np.bool_] = ~np.isnan(likely)
    seen = known.any(0)
    known, p = known[:, seen], np.where(known, likely, 0)[:, seen]
    weights = np.full(candidates, 1 / candidates)
    for _ in range(MOST):
        part = weights[:, None] * known
        r = weights[:, None] * p / (weights @ p) + (weights[:, None] - part) / part.sum(0)
        before, weights = weights, prior / candidates + r.sum(1)
        weights = weights / weights.sum()
        if np.abs(weights - before).max() < SETTLED:
            break
    return weights


def shift(numbers: Reals, labels: Reals) -> float:
    """d for numbers [m], NaN where nothing was said."""
    missed = (labels - numbers)[~np.isnan(numbers)]
    return float(missed.sum() / (len(missed) + DOUBT))


def mean_weights(said: Reals, labels: Reals, *, prior: float = PRIOR_OF_NUMBERS) -> Reals:
    """w [K] for a regression, from numbers [K, m]; of rows that all candidates were judged on.

    A candidate that was judged on none gets no weight; w is searched as a softmax.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    judged = ~np.isnan(said).all(1)
    rows = ~np.isnan(said[judged]).any(0)
    numbers, truth, count = said[judged][:, rows], labels[rows], int(judged.sum())
    weights = np.zeros(len(said))
    if not rows.any():
        weights[judged] = 1 / max(count, 1)
        return weights
    variance = max(float(((numbers - truth) ** 2).mean(1).min()), LEAST)

    def objective(free: Reals) -> tuple[float, Reals]:
        w = softmax(free)
        off = w @ numbers - truth
        value = float(off @ off) / (2 * variance) - prior / count * float(np.log(w).sum())
        slope = numbers @ off / variance - prior / count / w
        return value, w * (slope - w @ slope)

    found = minimize(
        objective, np.zeros(count), jac=True, method="L-BFGS-B", options={"ftol": 1e-12}
    )
    weights[judged] = softmax(found.x)
    return weights
