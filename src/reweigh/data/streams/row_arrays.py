"""Rows as numpy arrays: the values of each field by its name, all arrays of one length."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = dict[str, npt.NDArray[Any]]

ID = "#id"
"""The field that holds the id of an example: its row, counted through all shards."""


def row_count(rows: Rows) -> int:
    """How many rows there are."""
    return len(next(iter(rows.values())))


def taken(rows: Rows, which: slice | npt.NDArray[np.int64]) -> Rows:
    """The rows at some positions."""
    return {name: values[which] for name, values in rows.items()}


def joined(pieces: Sequence[Rows]) -> Rows:
    """The rows of all pieces, one piece after the other."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def cut(pieces: Iterable[Rows], size: int) -> Iterator[Rows]:
    """The same rows in pieces of `size`; the last may be smaller."""
    held: list[Rows] = []
    missing = size
    for piece in pieces:
        start, length = 0, row_count(piece)
        while length - start >= missing:
            held.append(taken(piece, slice(start, start + missing)))
            start += missing
            yield joined(held)
            held, missing = [], size
        if start < length:
            held.append(taken(piece, slice(start, length)))
            missing -= length - start
    if held:
        yield joined(held)
