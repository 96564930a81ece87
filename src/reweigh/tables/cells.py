"""Cells of a table as numbers, as words and as labels, whatever type the file gave them.

numbers       float64 [n], NaN where a cell is missing, infinite or no number
words         strings, stripped; missing where a cell is missing or blank
label_words   words, and "1.0" is "1": many programs write a column of whole numbers with one gap
              as 1.0, 2.0, ..., and it must still be the same class
Condition     `column op value`: which cells meet it. Read by a small parser, never evaluated
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import SettingError
from ..optional import optional

Numbers: TypeAlias = npt.NDArray[np.float64]
Array: TypeAlias = Any
"""A pyarrow array."""

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "?")
"""What stands for a missing cell in a text file."""
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
})  # fmt: skip
_FORM = re.compile(r"""\s*("[^"]+"|'[^']+'|[^=!<>]+?)\s*(==|!=|>=|<=|=|>|<)\s*(?!=)(\S.*?)\s*""")


def arrow(part: str = "") -> Any:
    """pyarrow, or one of its modules."""
    name = f"pyarrow.{part}".rstrip(".")
    return optional(name, package="pyarrow", needed_for="reading tables")


def pandas() -> Any:
    """pandas."""
    return optional("pandas", package="pandas", needed_for="reading tables")


def numbers(array: Array) -> Numbers:
    """Every cell as a number; seconds since 1970 for times."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    kind = array.type
    if types.is_dictionary(kind):
        return numbers(array.dictionary_decode())
    if types.is_null(kind):
        return np.full(len(array), np.nan)
    if types.is_boolean(kind):
        array = pc.cast(array, pa.uint8())
    if types.is_date(kind) or types.is_timestamp(kind):
        microseconds = pc.cast(pc.cast(array, pa.timestamp("us"), safe=False), pa.int64())
        array = pc.multiply(pc.cast(microseconds, pa.float64(), safe=False), 1e-6)
    if is_text(array):
        cells = pandas().to_numeric(array.to_pandas().astype(object), errors="coerce")
    else:
        cells = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    values = np.asarray(cells, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def words(array: Array) -> Array:
    """Every cell as a stripped string, a pyarrow array with nulls."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if types.is_dictionary(array.type):
        return words(array.dictionary_decode())
    if types.is_boolean(array.type):
        return pc.if_else(array, "True", "False")
    text, missing = pc.cast(array, pa.string()), pa.scalar(None, pa.string())
    if is_text(array):
        text = pc.utf8_trim_whitespace(text)
        return pc.if_else(pc.is_in(text, value_set=pa.array(MISSING)), missing, text)
    if types.is_floating(array.type):
        return pc.if_else(pc.is_finite(array), text, missing)
    return text


def label_words(array: Array) -> Array:
    """`words`, with whole numbers written without a decimal point."""
    return arrow("compute").replace_substring_regex(
        words(array), pattern=r"^(-?\d+)\.0+$", replacement=r"\1"
    )


def is_text(array: Array) -> bool:
    """Whether cells are strings."""
    types = arrow("types")
    return bool(types.is_string(array.type) or types.is_large_string(array.type))


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
    """Read a condition; an error shows the form.

    >>> parse_condition("'checked by' = \\"Ann Lee\\"")
    Condition(column='checked by', op='=', value='Ann Lee')
    """
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
