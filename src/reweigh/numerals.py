"""Numbers as a person writes them."""

from __future__ import annotations


def numeral(value: float, digits: int, *, sign: bool = False) -> str:
    """`value` to so many significant digits, written out unless that would be long.

    >>> numeral(64829.7, 4), numeral(0.99333, 4), numeral(1870.2, 3, sign=True), numeral(2e-9, 3)
    ('64,830', '0.9933', '+1,870', '2e-09')
    """
    rounded = float(f"{value:.{digits}g}")
    plus = "+" if sign else ""
    if rounded == 0 or 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:{plus},.15g}"
    return f"{rounded:{plus}.{digits}g}"
