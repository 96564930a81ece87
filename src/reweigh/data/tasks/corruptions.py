"""Wrong labels, made on purpose: pure functions of (labels, seed) that also say which changed.

    uniform_flip     y -> any other class, each equally likely
    background_flip  y -> one background class; labels already there stay
    pair_flip        y -> y + 1 (mod classes)
    transition       y -> k with probability matrix[y, k]

The first three flip *exactly* round(rate * eligible) labels, picked at random, so that a rate is a
count and not an expectation; eligible are all labels, or those outside the background class.
`transition` draws each label on its own.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, SettingError, unknown
from ...rng import Draws, Indices


class Corruption(NamedTuple):
    """The labels after corruption, int64 [n], and which of them differ from before, bool [n]."""

    labels: Tensor
    changed: Tensor


def uniform_flip(
    labels: Tensor, *, rate: float, classes: int, seed: int, variant: str = "paper"
) -> Corruption:
    """Flip a share of the labels to any *other* class, uniformly.

    `variant="published_code"` draws the new label from 0 ... classes-2, itself included: at rate
    .4 and ten classes about .36 of the labels really change, and none turns into the last class.
    """
    given = _checked(labels, classes, rate)
    picked = _pick(np.arange(len(given)), rate, Draws(seed, "uniform_flip", "which"))
    draws = Draws(seed, "uniform_flip", "to")
    if variant == "paper":
        if classes < 2 and len(picked):
            raise SettingError("uniform_flip needs two classes or more; there is only one")
        shift = 1 + draws.below(max(classes - 1, 1), len(picked))
        fresh = (given[picked] + shift) % classes
    elif variant == "published_code":
        fresh = draws.below(max(classes - 1, 1), len(picked))
    else:
        raise unknown("uniform_flip variant", variant, UNIFORM_VARIANTS)
    return _result(given, picked, fresh)


UNIFORM_VARIANTS = ("paper", "published_code")


def background_flip(
    labels: Tensor, *, rate: float, classes: int, seed: int, background: int = 0
) -> Corruption:
    """Flip a share of the labels outside the `background` class to it."""
    given = _checked(labels, classes, rate)
    if not 0 <= background < classes:
        raise SettingError(f"background class is {background}; expected 0 ... {classes - 1}")
    eligible = np.flatnonzero(given != background)
    picked = _pick(eligible, rate, Draws(seed, "background_flip", "which"))
    return _result(given, picked, np.full(len(picked), background, dtype=np.int64))


def pair_flip(labels: Tensor, *, rate: float, classes: int, seed: int) -> Corruption:
    """Flip a share of the labels to the next class, the last one to the first."""
    given = _checked(labels, classes, rate)
    if classes < 2 and rate > 0:
        raise SettingError("pair_flip needs two classes or more; there is only one")
    picked = _pick(np.arange(len(given)), rate, Draws(seed, "pair_flip", "which"))
    return _result(given, picked, (given[picked] + 1) % classes)


def transition(labels: Tensor, matrix: Tensor, *, seed: int) -> Corruption:
    """Draw every label anew from its row of `matrix`, [classes, classes], rows summing to one."""
    table = matrix.detach().cpu().double().numpy()
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise SettingError(f"transition matrix has shape {table.shape}; expected a square one")
    sums = table.sum(axis=1)
    if not np.isfinite(table).all() or (table < 0).any() or not np.allclose(sums, 1, atol=1e-6):
        row = int(np.argmax(np.abs(np.nan_to_num(sums, nan=np.inf) - 1)))
        raise SettingError(
            f"transition matrix row {row} sums to {sums[row]:.6g}; "
            "expected non-negative rows that sum to one"
        )
    given = _checked(labels, len(table), 0.0)
    ceilings = np.cumsum(table, axis=1)
    # Rounding can leave the last ceiling just under one; a draw above it must not fall off the
    # end, nor land on a class of probability zero.
    reachable = np.where(table > 0, np.arange(len(table)), -1).max(axis=1)
    drawn = (Draws(seed, "transition").uniform(len(given))[:, None] >= ceilings[given]).sum(axis=1)
    fresh = np.minimum(drawn, reachable[given])
    return _result(given, np.arange(len(given)), fresh)


CORRUPTIONS: Mapping[str, Callable[..., Corruption]] = MappingProxyType(
    {"uniform_flip": uniform_flip, "background_flip": background_flip, "pair_flip": pair_flip}
)
"""The corruptions a `Recipe` may name."""


def corrupt(
    name: str, labels: Tensor, *, rate: float, classes: int, seed: int, **options: object
) -> Corruption:
    """The corruption called `name` in the table; `none` changes nothing."""
    if name == "none":
        return Corruption(labels.clone(), torch.zeros(len(labels), dtype=torch.bool))
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, ["none", *CORRUPTIONS])
    return CORRUPTIONS[name](labels, rate=rate, classes=classes, seed=seed, **options)


def _checked(labels: Tensor, classes: int, rate: float) -> Indices:
    if not 0.0 <= rate <= 1.0:  # also refuses NaN
        raise SettingError(f"noise rate is {rate}; expected a share from 0 to 1")
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; "
            "expected one whole number for each example"
        )
    given: Indices = labels.detach().cpu().numpy().astype(np.int64)
    if len(given) and (given.min() < 0 or given.max() >= classes):
        raise DataError(
            f"labels run from {given.min()} to {given.max()}; expected 0 ... {classes - 1}"
        )
    return given


def _pick(eligible: Indices, rate: float, draws: Draws) -> Indices:
    """Exactly round(rate * eligible) of them; a higher rate picks a superset of a lower one's."""
    count = int(np.floor(rate * len(eligible) + 0.5))
    return eligible[draws.permutation(len(eligible))[:count]]


def _result(given: Indices, picked: Indices, fresh: Indices) -> Corruption:
    labels = given.copy()
    labels[picked] = fresh
    return Corruption(torch.from_numpy(labels), torch.from_numpy(labels != given))
