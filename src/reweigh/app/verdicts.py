"""What the judging rows said, as a user reads it: shares of right rows, or errors in the target's units.

In a regression `right` is minus the squared error in scaled units (candidates/judging.py), and

    error      scale * sqrt(mean of squares)        interval   1.96 scale * std(squares) / (2 sqrt(m mean))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..candidates import Judgement, Labels, Reals, confusion, easiness, figures, standing
from ..runs import CandidateFigures
from ..text import numeral

Z = 1.96


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Of one contest; `scale` is that of the targets, without classes."""

    labels: Labels
    classes: tuple[str, ...]
    scale: float
    by: str

    def told(self, mean: float) -> str:
        """A mean of `right` in words."""
        judges = {"test": "test", "validation": "validation"}
        rows = f"the {judges.get(self.by, 'checked')} rows"
        if self.classes:
            return f"right on {100 * mean:.1f}% of {rows}"
        return f"off by {numeral(self._error(mean), 3)} (root mean square) on {rows}"

    def short(self, mean: float) -> str:
        """The same, without the rows."""
        return f"{100 * mean:.1f}%" if self.classes else numeral(self._error(mean), 3)

    def values(self, right: Reals) -> Reals:
        """[m] right or not; the absolute error in a regression."""
        return right if self.classes else self.scale * np.sqrt(-right)

    def _error(self, mean: float) -> float:
        return self.scale * float(np.sqrt(max(-mean, 0.0)))

    def figures(
        self,
        judged: Mapping[str, Judgement],
        rights: Mapping[str, Reals],
        titles: Mapping[str, str],
        chosen: str,
    ) -> tuple[CandidateFigures, ...]:
        """Of all, the best first."""
        easy = easiness(rights)
        found = [
            self._figures(judgement, rights[name], easy, titles[name], name == chosen)
            for name, judgement in judged.items()
        ]
        means = standing(rights)
        return tuple(sorted(found, key=lambda each: -means[each.name]))

    def _figures(
        self, judgement: Judgement, right: Reals, easy: Reals | None, title: str, chosen: bool
    ) -> CandidateFigures:
        known = right[~np.isnan(right)]
        if not self.classes:
            mean = max(float(-known.mean()), 1e-12)
            half = Z * self.scale * float(known.std()) / (2 * float(np.sqrt(len(known) * mean)))
            error = self._error(-mean)
            return CandidateFigures(
                judgement.name, title, None, None, None, half, chosen, len(known), {}, error
            )
        each = figures(right, confusion(judgement, self.labels, len(self.classes)), easy)
        per_class = dict(zip(self.classes, each.per_class, strict=True))
        return CandidateFigures(
            judgement.name, title, each.accuracy, each.balanced_accuracy, each.macro_f1,
            each.interval, chosen, len(known), per_class,
        )  # fmt: skip
