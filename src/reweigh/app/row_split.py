"""Which row is for training, which is clean, which is for judging; what does not fit is refused.

rows of data   -> clean, if marked or confirmed;  left out, if without a label, unreadable, dropped,
                  or the same as a clean or a test row;  else train
rows of clean  -> clean, but for those held out for judging
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import DataError, unknown
from ..rng import Draws
from ..tables import Codes
from .inspection import ROLES, Inspected, Say, SourceFile
from .labelled_rows import LabelledRows, read_confirmed, read_dropped
from .options import Options

Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class RowSplit:
    """train, own_clean: rows of data; clean, test, validation: rows of their own sources."""

    classes: tuple[str, ...]
    train: LabelledRows
    own_clean: LabelledRows
    clean: LabelledRows
    test: LabelledRows
    validation: LabelledRows


def split_rows(inspected: Inspected, options: Options, *, say: Say) -> RowSplit:
    """Split the rows by their labels and marks, before any row is decoded."""
    regression = inspected.task == "regression"
    classes = () if regression else inspected.sources["data"].labels.names
    parts = dict.fromkeys(ROLES, LabelledRows(np.empty(0, np.int64), np.empty(0)))
    for role, source in inspected.sources.items():
        parts[role] = _labelled(source, classes)
        if gone := len(source) - len(parts[role]):
            many = (
                f"{gone:,} rows without a label are" if gone > 1 else "one row without a label is"
            )
            say(f"{role}: {many} left out")
    data, size = parts["data"], len(inspected.sources["data"])
    checked = inspected.sources["data"].marked[data.rows]
    own_clean, train = data.where(checked), data.where(~checked)
    if options.leave_out:
        dropped = read_dropped(options.leave_out, size)
        train, own_clean = (p.where(~np.isin(p.rows, dropped)) for p in (train, own_clean))
        say(f"{len(dropped):,} dropped rows are left out")
    if options.also_clean:
        extra = read_confirmed(options.also_clean, classes, size)
        train = train.where(~np.isin(train.rows, extra.rows))
        own_clean = own_clean.where(~np.isin(own_clean.rows, extra.rows))
        own_clean = LabelledRows(
            np.concatenate([own_clean.rows, extra.rows]),
            np.concatenate([own_clean.labels, extra.labels]),
        )
        say(f"{len(extra):,} confirmed rows join the clean set")
    split = RowSplit(classes, train, own_clean, parts["clean"], parts["test"], parts["validation"])
    if not len(own_clean) + len(parts["clean"]):
        raise DataError("no clean row is left; expected a few rows whose labels are checked")
    if not regression:
        split = _with_common_classes(split, only_clean_classes=options.only_clean_classes, say=say)
    if len(split.train) < 10:
        raise DataError(f"{len(split.train)} rows are left to train on; expected 10 or more")
    return split


def _labelled(source: SourceFile, classes: tuple[str, ...]) -> LabelledRows:
    """The rows of a file that have a label; numbers, if there are no classes."""
    labels = source.labels
    if not classes:
        if labels.values is None:
            raise DataError(f"{source.path}: labels are words; expected numbers as in the data")
        values = labels.values
        rows = np.flatnonzero(~np.isnan(values))
    else:
        if labels.codes is None:
            raise DataError(f"{source.path}: too many different labels to be classes")
        for name in labels.names:
            if name not in classes:
                error = unknown("class", name, classes)
                raise DataError(
                    f"{source.path}: {error}; every class here must be in the training data too"
                )
        values = labels.coded(classes).astype(np.float64)
        rows = np.flatnonzero(values >= 0)
    if not len(rows):
        raise DataError(f"{source.path}: every label is missing")
    return LabelledRows(rows, values[rows])


def _with_common_classes(split: RowSplit, *, only_clean_classes: bool, say: Say) -> RowSplit:
    """The classes of train and clean rows must be the same, and at least two."""
    in_train = set(split.train.labels.astype(int))
    clean_labels = np.concatenate([split.own_clean.labels, split.clean.labels])
    in_clean = set(clean_labels.astype(int))
    name = split.classes.__getitem__
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
        keep = np.isin(split.train.labels, sorted(in_clean))
        say(f"{int(np.sum(~keep)):,} rows of classes without a clean row are left out: {listed}")
        split = _renumbered(split, sorted(in_clean))
    if len(split.classes) < 2:
        raise DataError(
            f"there is only one class, {split.classes[0]!r}; expected two or more to tell apart"
        )
    return split


def _renumbered(split: RowSplit, kept: list[int]) -> RowSplit:
    """Only the rows of the classes `kept`, which become 0, 1, 2, ..."""
    place = np.full(len(split.classes), -1.0)
    place[kept] = np.arange(len(kept))

    def moved(part: LabelledRows) -> LabelledRows:
        part = part.where(np.isin(part.labels, kept))
        return LabelledRows(part.rows, place[part.labels.astype(int)])

    classes = tuple(split.classes[c] for c in kept)
    parts = (split.train, split.own_clean, split.clean, split.test, split.validation)
    return RowSplit(classes, *map(moved, parts))


def hold_out(
    clean: LabelledRows, share: float, *, classes: int, seed: int
) -> npt.NDArray[np.bool_]:
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
    left, taken = Counter(others.tolist()), np.isin(rows, others)
    for place in np.flatnonzero(taken).tolist():
        digest = int(rows[place])
        taken[place] = left[digest] > 0
        left[digest] -= 1
    return taken
