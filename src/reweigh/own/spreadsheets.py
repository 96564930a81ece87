"""Cells that are safe to open in a spreadsheet.

A cell that begins with = + - @ (or a tab or return) is run as a formula by spreadsheets, and labels
come from files nobody vouches for. Such a cell gets an apostrophe in front, which spreadsheets take
as "this is text"; a number such as -1 is left as it is.
"""

from __future__ import annotations

DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe(cell: str | None) -> str | None:
    """The cell, never a formula.

    >>> safe("=HYPERLINK(...)"), safe("-1"), safe("cat")
    ("'=HYPERLINK(...)", '-1', 'cat')
    """
    if cell is None or not cell.startswith(DANGEROUS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
