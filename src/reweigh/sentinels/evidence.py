"""Evidence about a row under a label: what witnesses and the posterior say, and how the label fares in training.

    p_w(c)      what witness w says of the row (witnesses.py), (p_w(c) + SMOOTH) / (1 + SMOOTH classes):
                "never" in fifty trees is not never
    e_w(x, g)   log of the largest p_w(c), c != g, over p_w(g): one per witness
    e_0(x, g)   logit of 1 - q(g),   q(c) proportional to p(c) T[c, g], p the mean of the witnesses that
                speak of the truth
    T[c, g]     how often c is called g, in part: proportional to T^trust U^(1 - trust), where U has the
                same share of errors, spread evenly
    trust       TRUST + (1 - TRUST) counted, counted = errors / (errors + ENOUGH) of pairs of labels that
                are known: a T that was counted is believed, one that was inferred only a little
    last        loss, margin and predictions over a training (dynamics.py)
    suggestion  the c != g with the largest mean of p_w(c);  l: the logit of its part of all c != g

An inferred T holds if errors depend on the true class alone. Where they do not, it is wrong, and e_0 with
it; and copies of checked rows drawn from that same T would say that it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..candidates import Places, Reals
from .joint import PULL, Mixing, counted
from .witnesses import Testimony

FARTHEST = 8.0
SMOOTH = 0.01
TRUST, ENOUGH = 0.25, 30.0


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """values [k, 1 + witnesses + 3]: e_0 first; the likeliest other class, and the logit l of its part."""

    values: Reals
    suggested: Places
    logits: Reals

    @classmethod
    def of_train(cls, said: Testimony, turned: Reals, given: Places) -> LabelEvidence:
        """Of all train rows under their given labels; `turned` [parts, y, g] is T."""
        p, _ = said.truth()
        rows = np.arange(len(given))
        fared = said.dynamics[0].under(rows, given) if said.dynamics else None
        return cls._of(said.train, p, turned[said.train_folds, :, given], rows, given, fared)

    @classmethod
    def of_checked(
        cls, said: Testimony, turned: Reals, rows: Places, labels: Places
    ) -> LabelEvidence:
        """Of checked rows under labels [k]; `turned` [parts, y, g] is T."""
        _, p = said.truth()
        fared = said.dynamics[1].under(rows, labels) if said.dynamics else None
        called = turned[said.folds[rows], :, labels]
        return cls._of(said.checked, p, called, rows, labels, fared)

    @classmethod
    def _of(
        cls,
        said: Mapping[str, Reals],
        p: Reals,
        called: Reals,
        rows: Places,
        labels: Places,
        fared: Reals | None,
    ) -> LabelEvidence:
        """`called` [k, classes]: how often each class is called the label."""
        each = np.arange(len(rows))
        joint_p = np.maximum(p[rows], 1e-9) * called
        own = joint_p[each, labels] / joint_p.sum(1)
        columns = [np.log(np.maximum(1 - own, 1e-9)) - np.log(np.maximum(own, 1e-9))]
        others = np.zeros_like(joint_p)
        for probabilities in said.values():
            smooth = (probabilities[rows] + SMOOTH) / (1 + SMOOTH * probabilities.shape[1])
            others += smooth
            logs = np.log(smooth)
            of_label = logs[each, labels].copy()
            logs[each, labels] = -np.inf
            columns.append(logs.max(1) - of_label)
        others[each, labels] = 0
        suggested = others.argmax(1)
        part = np.clip(others[each, suggested] / others.sum(1), 1e-6, 1 - 1e-6)
        values = np.stack(columns, axis=1)
        values = values if fared is None else np.concatenate([values, fared], axis=1)
        return cls(_clipped(values), suggested, np.log(part / (1 - part)))


def _clipped(values: Reals) -> Reals:
    return np.asarray(np.clip(values, -FARTHEST, FARTHEST))


def counted_share(checked_given: Places | None, labels: Places) -> float:
    """`counted` at the head of this file; `checked_given` [m] is -1 where it is not known."""
    if checked_given is None:
        return 0.0
    errors = int(((checked_given >= 0) & (checked_given != labels)).sum())
    return errors / (errors + ENOUGH)


def transitions(said: Testimony, given: Places, labels: Places, pairs: Places | None) -> Reals:
    """[parts, y, g] how often y is called g, found without the rows of each part.

    With its checked rows, a class whose checked rows look odd would seem to be called right more often: those
    rows would seem less odd than train rows. With its train rows, an odd row would make others of its name
    look mixed up, and so itself. Either way flags would break their promise.
    """
    p, p_checked = said.truth()
    trust = TRUST + (1 - TRUST) * counted_share(pairs, labels)
    found = []
    for part in range(said.parts):
        others, rest = said.train_folds != part, said.folds != part
        mixing = Mixing.of(p[others], given[others])
        shares = mixing.shares(
            p_checked[rest], labels[rest], np.ones(int(rest.sum())), trust=0.5, pull=0.1 * PULL
        )
        if pairs is not None:
            known = rest & (pairs >= 0)
            shares = counted(shares, pairs[known], labels[known], np.ones(int(known.sum())))
        found.append(tempered(shares, trust))
    return np.stack(found)


def tempered(shares: Reals, trust: float) -> Reals:
    """T [y, g] from J [y, g], proportional to T^trust U^(1 - trust)."""
    classes = len(shares)
    turned = (shares + 1e-6) / (shares + 1e-6).sum(1, keepdims=True)
    wrong = float(np.clip(1 - np.trace(shares), 0.02, 0.9))
    even = np.where(np.eye(classes) > 0, 1 - wrong, wrong / max(classes - 1, 1))
    mixed = turned**trust * even ** (1 - trust)
    return np.asarray(mixed / mixed.sum(1, keepdims=True))
