"""The labels that a table or a folder gives, collected piece by piece, and the kind of task they make.

    classes      words, or whole numbers with few different values
    regression   numbers with fractions, or with many different values

>>> scan = LabelScan(); scan.add_names(["cat", "dog", None]); scan.finish().names
('cat', 'dog')
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import DataError, unknown
from .cells import DOUBTFUL, Array, Numbers, arrow, label_words, numbers

Codes = npt.NDArray[np.int64]

TASKS = ("auto", "classes", "regression")
MOST_CLASSES = 10_000
FEW = 30
"""Up to 30 different whole numbers are classes; more are a quantity."""


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """The labels of n rows: as classes, as numbers, or as both where both are possible.

    codes    [n] the position in `names`, -1 where a label is missing; None if there are too many
    values   [n] the numbers, NaN where a label is missing; None if the labels are words
    """

    names: tuple[str, ...]
    codes: Codes | None
    values: Numbers | None

    def __len__(self) -> int:
        labels = self.codes if self.codes is not None else self.values
        return 0 if labels is None else len(labels)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which labels are missing."""
        if self.codes is not None:
            return np.asarray(self.codes < 0)
        assert self.values is not None, "labels are codes or numbers"
        return np.isnan(self.values)

    def guess(self) -> str:
        """The kind of task: "classes" or "regression"."""
        if self.values is None or self._has_words(np.isnan(self.values) & ~self.missing):
            return "classes"
        known = self.values[~np.isnan(self.values)]
        no_fractions = bool(np.all(known % 1 == 0))
        few = self.codes is not None and len(self.names) <= FEW
        return "classes" if no_fractions and few else "regression"

    def _has_words(self, rows: npt.NDArray[np.bool_]) -> bool:
        """Whether a label of these rows, which are no finite numbers, is a word."""
        if self.codes is None:
            return bool(rows.any())
        names = [self.names[code] for code in np.unique(self.codes[rows])]
        return not all(name.lower().strip("+-") in ("inf", "infinity") for name in names)

    def coded(self, names: Sequence[str]) -> Codes:
        """The codes in another list of names; -1 where a label is missing or not in the list."""
        assert self.codes is not None, "asked only of classes"
        place = {name: k for k, name in enumerate(names)}
        moved = np.array([*(place.get(name, -1) for name in self.names), -1], dtype=np.int64)
        return moved[self.codes]


class LabelScan:
    """Collects labels in 16 bytes per row; beyond 10,000 classes they can only be numbers.

    "NA" or "None" is the name of a class, unless all other labels of the column are numbers: then it
    says that a label is missing.
    """

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._codes: list[Codes] | None = []
        self._values: list[Numbers] | None = []
        self._exact = False

    def add(self, array: Array) -> None:
        """The next piece of the target column."""
        self._add(array, label_words(array))

    def _add(self, array: Array, cells: Array) -> None:
        if self._values is not None:
            values = numbers(array)
            there = len(cells) - cells.null_count
            if there and not np.any(~np.isnan(values)):
                self._values = None
            else:
                self._values.append(values)
        if self._codes is not None:
            encoded = cells.dictionary_encode()
            names = encoded.dictionary.to_pylist()
            codes = np.array(
                [*(self._place.setdefault(name, len(self._place)) for name in names), -1]
            )
            local = np.asarray(arrow("compute").fill_null(encoded.indices, len(names)))
            self._codes.append(codes[local].astype(np.int64))
            if len(self._place) > MOST_CLASSES:
                self._codes, self._place = None, {}

    def add_names(self, names: Sequence[str | None]) -> None:
        """The next labels, as names that are what they say: a folder called `nan` is a class."""
        column = arrow().array(names, arrow().string())
        self._add(column, column)
        self._exact = True

    def finish(self) -> GivenLabels:
        """All labels; names in order: numbers by size, words by alphabet."""
        if self._codes is None and self._values is None:
            raise DataError(
                f"the target has more than {MOST_CLASSES:,} different labels that are no numbers; "
                "expected classes or a quantity: is it the right column?"
            )
        values = None if self._values is None else np.concatenate([np.empty(0), *self._values])
        if self._codes is None:
            return GivenLabels((), None, values)
        codes = np.concatenate([np.empty(0, np.int64), *self._codes])
        names = tuple(sorted(self._names(), key=_order))
        as_met = GivenLabels(tuple(self._place), codes, values)
        return GivenLabels(names, as_met.coded(names), values)

    def _names(self) -> list[str]:
        sure = [name for name in self._place if name not in DOUBTFUL]
        numeric = sure and all(_order(name)[0] == 0 for name in sure)
        return sure if numeric and not self._exact else list(self._place)


def _order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


def decide_task(asked: str, labels: GivenLabels) -> str:
    """The task asked for, or the one the labels look like."""
    if asked not in TASKS:
        raise unknown("task", asked, TASKS)
    if asked == "regression" and labels.values is None:
        raise DataError("--task regression was asked, but the labels are words; expected numbers")
    if asked == "classes" and labels.codes is None:
        raise DataError(
            f"--task classes was asked, but there are more than {MOST_CLASSES:,} different labels"
        )
    return labels.guess() if asked == "auto" else asked
