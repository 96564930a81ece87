"""Cells of a table as numbers, as words and as labels, whatever type the file gave them.

numbers       float64 [n], NaN where a cell is missing, infinite or no number
words         strings, stripped; missing where a cell is missing, blank or a word for nothing
label_words   words, and "1.0" is "1": many programs write a column of whole numbers with one gap
              as 1.0, 2.0, ..., and it must still be the same class. "NA" and "None" are kept: they
              are labels, unless all others are numbers
unreadable    why a column cannot be read as cells: lists, records, raw bytes
Condition     `column op value`: which cells meet it. Read by a small parser, never evaluated
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
DOUBTFUL = ("NA", "N/A", "n/a", "None")
"""Those of them that people also use as the name of a class."""
_NO_LABEL = tuple(word for word in MISSING if word not in DOUBTFUL)
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
})  # fmt: skip
_FORM = re.compile(r"""\s*("[^"]+"|'[^']+'|[^=!<>]+?)\s*(==|!=|>=|<=|=|>|<)\s*(?!=)(\S.*?)\s*""")


@cache
def arrow(part: str = "") -> Any:
    """pyarrow, or one of its modules."""
    name = f"pyarrow.{part}".rstrip(".")
    return optional(name, package="pyarrow", needed_for="reading tables")


@cache
def pandas() -> Any:
    """pandas."""
    return optional("pandas", package="pandas", needed_for="reading tables")


@cache
def _nested() -> Any:
    return arrow().struct([("json", arrow().string())])


def nested_column(texts: Array) -> Array:
    """A column of lists or records, from their JSON texts."""
    missing = arrow("compute").is_null(texts)
    return arrow().StructArray.from_arrays([texts], fields=list(_nested()), mask=missing)


def unreadable(array: Array) -> str | None:
    """What a column holds that is neither number nor word, in words; None if it can be read.

    >>> unreadable(arrow().array([[1, 2], [3]]))
    'holds lists'
    """
    types, kind = arrow("types"), array.type
    if kind == _nested():
        return "holds lists or records"
    if types.is_map(kind) or types.is_struct(kind) or types.is_union(kind):
        return "holds records"
    if types.is_nested(kind):
        return "holds lists"
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    if is_bytes or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return "holds raw bytes"
    return None


def numbers(array: Array) -> Numbers:
    """Every cell as a number; seconds since 1970 for dates, since midnight for times of the day."""
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
    if types.is_time(kind) or types.is_duration(kind):
        array = _seconds(array)
    if unreadable(array):
        return np.full(len(array), np.nan)
    if is_text(array):
        cells = pandas().to_numeric(array.to_pandas().astype(object), errors="coerce")
    else:
        cells = pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    values = np.asarray(cells, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def count_infinite(array: Array) -> int:
    """How many cells are an infinite number, or words for one."""
    pc, types = arrow("compute"), arrow("types")
    if types.is_floating(array.type):
        return pc.sum(pc.is_inf(array)).as_py() or 0
    if not is_text(array):
        return 0
    return pc.sum(pc.match_substring_regex(array, r"^\s*[+-]?[iI]nf(inity)?\s*$")).as_py() or 0


def _seconds(array: Array) -> Array:
    """Times of the day or durations, in seconds."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    per_second = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[array.type.unit]
    whole = pa.int32() if types.is_time32(array.type) else pa.int64()
    return pc.divide(pc.cast(pc.cast(array, whole), pa.float64(), safe=False), per_second)


def words(array: Array, *, missing: Sequence[str] = MISSING) -> Array:
    """Every cell as a stripped string, a pyarrow array with nulls; `missing` are words for nothing.

    Lists and records are written out, raw bytes are counted: for people to see, not to learn from.
    """
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if types.is_dictionary(array.type):
        return words(array.dictionary_decode(), missing=missing)
    if types.is_boolean(array.type):
        return pc.if_else(array, "True", "False")
    if unreadable(array):
        return _shown_cells(array)
    if types.is_duration(array.type):
        array = _seconds(array)
    text, nothing = pc.cast(array, pa.string()), pa.scalar(None, pa.string())
    if is_text(array):
        text = pc.utf8_trim_whitespace(text)
        return pc.if_else(pc.is_in(text, value_set=pa.array(missing)), nothing, text)
    if types.is_floating(array.type):
        return pc.if_else(pc.is_finite(array), text, nothing)
    return text


def _shown_cells(array: Array) -> Array:
    """A column that is unreadable, for people to see; JSON as it was written."""
    if array.type == _nested():
        return arrow("compute").struct_field(array, "json")
    shown = [None if cell is None else _shown(cell) for cell in array.to_pylist()]
    return arrow().array(shown, arrow().string())


def _shown(cell: Any) -> str:
    """A cell that is no word: bytes by their number, lists and records by their first entries."""
    if isinstance(cell, bytes):
        return f"<{len(cell):,} bytes>"
    if isinstance(cell, dict):
        return "{" + ", ".join(f"{key}: {_shown(cell[key])}" for key in list(cell)[:8]) + "}"
    if isinstance(cell, (list, tuple)):
        return "[" + ", ".join(map(_shown, cell[:8])) + (", ...]" if len(cell) > 8 else "]")
    return str(cell)[:200]


def label_words(array: Array, *, missing: Sequence[str] = _NO_LABEL) -> Array:
    """`words`, with whole numbers written without a decimal point."""
    return arrow("compute").replace_substring_regex(
        words(array, missing=missing), pattern=r"^(-?\d+)\.0+$", replacement=r"\1"
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
            cells = label_words(array, missing=[m for m in MISSING if m != self.value]).to_pylist()
            return np.array([w is not None and compare(w, self.value) for w in cells], dtype=bool)
        values = numbers(array)
        return np.asarray(compare(values, number) & ~np.isnan(values))


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
