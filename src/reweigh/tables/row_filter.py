"""`column op value`: which rows of a table are meant. Read by a small parser, never evaluated.

>>> parse_condition("checked == 1")
Condition(column='checked', op='==', value='1')
>>> parse_condition("'checked by' = \\"Ann Lee\\"").value
'Ann Lee'
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import SettingError
from .cells import Array, label_words, numbers

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
})  # fmt: skip
_FORM = re.compile(r"""\s*("[^"]+"|'[^']+'|[^=!<>]+?)\s*(==|!=|>=|<=|=|>|<)\s*(?!=)(\S.*?)\s*""")


@dataclass(frozen=True)
class Condition:
    """A condition on one column. A missing cell meets no condition, not even `!=`."""

    column: str
    op: str
    value: str

    def meets(self, array: Array) -> npt.NDArray[np.bool_]:
        """Which cells meet it: as numbers where `value` is one, else as words."""
        compare = OPERATORS[self.op]
        try:
            number = float(self.value)
        except ValueError:
            words = label_words(array).to_pylist()
            return np.array([w is not None and compare(w, self.value) for w in words], dtype=bool)
        cells = numbers(array)
        return np.asarray(compare(cells, number) & ~np.isnan(cells))


def parse_condition(text: str) -> Condition:
    """Read a condition; an error shows the form."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise SettingError(
            f"cannot read the condition {text!r}; expected COLUMN OP VALUE with one of "
            f"{' '.join(OPERATORS)}, for example: checked == 1"
        )
    column, op, value = match.groups()
    return Condition(_unquoted(column), op, _unquoted(value))


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text.strip()
