"""Cells that a spreadsheet would run instead of show, made harmless with a leading apostrophe.

A spreadsheet takes a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return for a formula,
and a formula can fetch addresses and start programs. Left alone are what cannot: numbers, in any usual
way of writing them, and single characters (`-` for "none", `+` for a class).
"""

from __future__ import annotations

import re

_FORMULA = re.compile(r"\s*[=+\-@\t\r]")
_HARMLESS = re.compile(
    r"[+-]?(?:[\d\s.,:%/()+-]*|\d*\.?\d+[eE][+-]?\d+|(?:inf(?:inity)?|nan)%?)", re.I
)


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
