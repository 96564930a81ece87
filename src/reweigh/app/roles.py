"""Which row does what: train, clean, test; and everything that must be refused before training.

rows of data   -> clean, if marked or confirmed;  left out, if unlabelled, unreadable, dropped,
                  or the same as a clean or a test row;  else train
rows of clean  -> clean, less those held out for judging
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import DataError, unknown
from ..rng import Draws
from ..tables import Codes
from .inspection import Gathered, Say
from .labelled import Labelled, read_confirmed, read_dropped
from .options import Options

Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Roles:
    """train, own_clean: rows of data; clean, test: rows of their own sources."""

    classes: tuple[str, ...]
    train: Labelled
    own_clean: Labelled
    clean: Labelled
    test: Labelled


def assign(found: Gathered, options: Options, *, say: Say) -> Roles:
    """Sort the rows by what is known before any is decoded; raises on labels that do not fit."""
    classes = _classes(found)
    parts = {
        role: _labelled(found, role, classes) if role in found.sources else _none()
        for role in ("data", "clean", "test")
    }
    for role, part in parts.items():
        if role in found.sources and (gone := len(found.sources[role]) - len(part)):
            say(f"{role}: {gone:,} rows without a label are left out")
    data, size = parts["data"], len(found.sources["data"])
    checked = found.sources["data"].marked[data.rows]
    own_clean, train = data.where(checked), data.where(~checked)
    if options.leave_out:
        dropped = read_dropped(options.leave_out, size)
        train, own_clean = (p.where(~np.isin(p.rows, dropped)) for p in (train, own_clean))
        say(f"{len(dropped):,} dropped rows are left out")
    if options.also_clean:
        extra = read_confirmed(options.also_clean, classes, size)
        train = train.where(~np.isin(train.rows, extra.rows))
        own_clean = own_clean.where(~np.isin(own_clean.rows, extra.rows))
        own_clean = Labelled(
            np.concatenate([own_clean.rows, extra.rows]),
            np.concatenate([own_clean.labels, extra.labels]),
        )
        say(f"{len(extra):,} confirmed rows join the clean set")
    roles = Roles(classes, train, own_clean, parts["clean"], parts["test"])
    if not len(own_clean) + len(parts["clean"]):
        raise DataError("no clean row is left; expected a few rows whose labels are checked")
    if found.task == "classes":
        roles = _fitting(roles, only_clean_classes=options.only_clean_classes, say=say)
    if len(roles.train) < 10:
        raise DataError(f"{len(roles.train)} rows are left to train on; expected 10 or more")
    return roles


def _none() -> Labelled:
    return Labelled(np.empty(0, np.int64), np.empty(0))


def _classes(found: Gathered) -> tuple[str, ...]:
    if found.task == "regression":
        return ()
    return found.sources["data"].targets.names


def _labelled(found: Gathered, role: str, classes: tuple[str, ...]) -> Labelled:
    source = found.sources[role]
    targets = source.targets
    if found.task == "regression":
        if targets.values is None:
            raise DataError(f"{source.path}: labels are words; expected numbers as in the data")
        values = targets.values
        rows = np.flatnonzero(~np.isnan(values))
    else:
        if targets.codes is None:
            raise DataError(f"{source.path}: too many different labels to be classes")
        for name in targets.names:
            if name not in classes:
                error = unknown("class", name, classes)
                raise DataError(
                    f"{source.path}: {error}; every class here must be in the training data too"
                )
        values = targets.coded(classes).astype(np.float64)
        rows = np.flatnonzero(values >= 0)
    if not len(rows):
        raise DataError(f"{source.path}: every label is missing")
    return Labelled(rows, values[rows])


def _fitting(roles: Roles, *, only_clean_classes: bool, say: Say) -> Roles:
    """Classes of train and clean must be the same, and two at least."""
    in_train = set(roles.train.labels.astype(int))
    clean_labels = np.concatenate([roles.own_clean.labels, roles.clean.labels])
    in_clean = set(clean_labels.astype(int))
    name = roles.classes.__getitem__
    if only := sorted(in_clean - in_train):
        raise DataError(
            f"class {name(only[0])!r} is in the clean rows but not in the training rows; "
            "expected the same classes in both"
        )
    if lacking := sorted(in_train - in_clean):
        listed = ", ".join(repr(name(c)) for c in lacking[:5]) + ", ..." * (len(lacking) > 5)
        if not only_clean_classes:
            raise DataError(
                f"{len(lacking)} of {len(in_train)} classes have no clean row: {listed}; check one "
                "or more of each, or leave such rows out with --only-clean-classes"
            )
        keep = np.isin(roles.train.labels, sorted(in_clean))
        say(f"{int(np.sum(~keep)):,} rows of classes without a clean row are left out: {listed}")
        roles = _renumbered(roles, sorted(in_clean), keep)
    if len(roles.classes) < 2:
        raise DataError(
            f"there is only one class, {roles.classes[0]!r}; expected two or more to tell apart"
        )
    return roles


def _renumbered(roles: Roles, kept: list[int], in_train: npt.NDArray[np.bool_]) -> Roles:
    place = np.full(len(roles.classes), -1.0)
    place[kept] = np.arange(len(kept))

    def moved(part: Labelled) -> Labelled:
        part = part.where(np.isin(part.labels, kept))
        return Labelled(part.rows, place[part.labels.astype(int)])

    return Roles(
        tuple(roles.classes[c] for c in kept),
        moved(roles.train.where(in_train)),
        moved(roles.own_clean),
        moved(roles.clean),
        moved(roles.test),
    )


def hold_out(clean: Labelled, share: float, *, classes: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which clean rows are kept for judging: `share` of each class, never its last row."""
    order = Draws(seed, "holdout").permutation(len(clean))
    held = np.zeros(len(clean), dtype=bool)
    groups: list[Codes] = (
        [order[clean.labels[order] == c] for c in range(classes)] if classes else [order]
    )
    for group in groups:
        held[group[: min(int(share * len(group)), len(group) - 1)]] = True
    return held


def repeated(rows: Digests, others: Digests) -> npt.NDArray[np.bool_]:
    """Which of `rows` are also among `others`; each of those accounts for one row at most.

    Tables with few columns hold equal rows that are different cases; a checked copy of one row
    must not take all of them out.
    """
    values, counts = np.unique(others, return_counts=True)
    if not len(values):
        return np.zeros(len(rows), dtype=bool)
    place = np.minimum(np.searchsorted(values, rows), len(values) - 1)
    hits = np.flatnonzero(values[place] == rows)
    budget, taken = dict(enumerate(counts.tolist())), np.zeros(len(rows), dtype=bool)
    for hit in hits.tolist():
        if budget[int(place[hit])] > 0:
            budget[int(place[hit])] -= 1
            taken[hit] = True
    return taken
