"""Numbers and cells as text that people and spreadsheets read.

    numeral      a number as a person writes it
    harmless     a cell that no spreadsheet runs as a formula
    first_line   the first line of an error, for a message that has to stay on one line

A spreadsheet takes a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return for a formula,
and a formula can fetch addresses and start programs. Such a cell gets a leading apostrophe. Left alone
are the cells that cannot run: numbers, in any usual way of writing them, and single characters (`-` for
"none", `+` for a class).
"""

import re

_FORMULA = re.compile(r"\s*[=+\-@\t\r]")
_HARMLESS = re.compile(
    r"[+-]?(?:[\d\s.,:%/()+-]*|\d*\.?\d+[eE][+-]?\d+|(?:inf(?:inity)?|nan)%?)", re.I
)


def numeral(value: float, digits: int, *, sign: bool = False) -> str:
    """`value` with `digits` significant digits, written out unless that would be long.

    >>> numeral(64829.7, 4), numeral(0.99333, 4), numeral(1870.2, 3, sign=True), numeral(2e-9, 3)
    ('64,830', '0.9933', '+1,870', '2e-09')
    """
    rounded = float(f"{value:.{digits}g}")
    plus = "+" if sign else ""
    if rounded == 0 or 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:{plus},.15g}"
    return f"{rounded:{plus}.{digits}g}"


def is_formula(cell: str) -> bool:
    r"""Whether a spreadsheet could run `cell`.

    >>> [is_formula(cell) for cell in ("=1+1", "@SUM(A1)", "-2+cmd|' /C calc'!A0", "\t=1")]
    [True, True, True, True]
    >>> [is_formula(cell) for cell in ("-1.5e-3", "-1,234.50", "+49 30 123", "-", "-5%", "cat")]
    [False, False, False, False, False, False]
    """
    return len(cell) > 1 and bool(_FORMULA.match(cell)) and not _HARMLESS.fullmatch(cell)


def harmless(cell: str) -> str:
    """`cell`, with an apostrophe in front if it would run.

    >>> harmless("=1+1"), harmless("-1")
    ("'=1+1", '-1')
    """
    return f"'{cell}" if is_formula(cell) else cell


def first_line(error: object) -> str:
    """The first line of what `error` says; its type where it says nothing.

    >>> first_line(ValueError("bad row\\nline 3")), first_line(EOFError())
    ('bad row', 'EOFError')
    """
    return (str(error).splitlines() or [type(error).__name__])[0]
