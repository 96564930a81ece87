"""Decimal commas: 3,14 where other files have 3.14. Told per column, from the cells alone.

    comma      number cells are whole, or as 3,14 and 1.234,5; at least one comma cannot part thousands
    unclear    every comma could part thousands (1,234), or decimal points occur as well
    ""         no column of numbers with commas

Only in text files whose cells are parted by something else: `;`, a tab or `|`.
"""

from __future__ import annotations

from .cells import MISSING, Array, arrow

COMMA, UNCLEAR, NONE = "comma", "unclear", ""
MOSTLY = 0.95
"""Share of the cells that must be numbers."""
_SIGN, _GROUPS = r"^[+-]?", r"\d{1,3}(?:[. '\x{a0}\x{202f}]\d{3})+"
_POWER = r"(?:[eE][+-]?\d+)?$"
_DECIMAL = rf"{_SIGN}(?:\d*|{_GROUPS}),\d+{_POWER}"
_WHOLE = rf"{_SIGN}(?:\d+|{_GROUPS})$"
_POINT = rf"{_SIGN}\d*\.\d+{_POWER}"
_THOUSANDS = rf"{_SIGN}[1-9]\d{{0,2}}(?:,\d{{3}})+$"


def decimal_style(array: Array) -> str:
    """COMMA, UNCLEAR or NONE for a column of strings.

    >>> pa = arrow(); decimal_style(pa.array(["3,14", "2", "1.234,5", ""]))
    'comma'
    >>> decimal_style(pa.array(["1,234", "2,500"])), decimal_style(pa.array(["Ulm, 3", "Rom, 4"]))
    ('unclear', '')
    """
    pa, pc = arrow(), arrow("compute")
    cells = pc.utf8_trim_whitespace(array.drop_null())
    cells = cells.filter(pc.invert(pc.is_in(cells, value_set=pa.array(MISSING))))
    if not len(cells) or not _count(cells, ","):
        return NONE
    decimal, whole, point = (_count(cells, form) for form in (_DECIMAL, _WHOLE, _POINT))
    # 1.234 is both: a point, and a whole number with groups.
    both = _count(cells, rf"{_SIGN}\d{{1,3}}\.\d{{3}}$")
    if not decimal or decimal + whole + point - both < MOSTLY * len(cells):
        return NONE
    thousands = _count(cells, _THOUSANDS)
    certain = decimal - _count(cells, rf"{_SIGN}[1-9]\d{{0,2}},\d{{3}}$")
    return COMMA if certain and point == both and thousands <= decimal - certain else UNCLEAR


def with_points(array: Array) -> Array:
    """Cells as 3,14 and 1.234,5 become 3.14 and 1234.5; so does 1.234 become 1234. Others stay."""
    pc = arrow("compute")
    cells = pc.utf8_trim_whitespace(array)
    number = pc.or_(_matches(cells, _DECIMAL), _matches(cells, _WHOLE))
    plain = pc.replace_substring_regex(cells, pattern=r"[. '\x{a0}\x{202f}]", replacement="")
    plain = pc.replace_substring(plain, pattern=",", replacement=".")
    return pc.if_else(pc.fill_null(number, False), plain, array)


def _matches(cells: Array, form: str) -> Array:
    return arrow("compute").match_substring_regex(cells, form)


def _count(cells: Array, form: str) -> int:
    return arrow("compute").sum(_matches(cells, form)).as_py() or 0
