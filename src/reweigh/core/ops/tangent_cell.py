"""The cell that a tensor carries during a pass: its tangent, and what else is known of it.

It hangs on the tensor itself, so that it lives as long as the tensor does. Only this file knows where.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

_ATTRIBUTE = "_reweigh"


class TangentCell:
    """What a tensor carries during a pass; emptied when the pass ends, whoever still holds it."""

    __slots__ = ("__weakref__", "born", "owner", "spent", "tangent", "varies")

    def __init__(self, owner: object, tangent: Tensor | None, varies: bool) -> None:
        self.owner = owner
        self.tangent = tangent
        self.varies = varies  # whether the tensor depends on the batch
        self.born: Any = None  # the operation and output it came from, where a pass keeps count
        self.spent = False  # freed early, in the belief that nothing would ask again


class Outlived(Exception):
    """A tangent was asked for after what had looked like its last use: the pass differs from before."""


def cell_of(tensor: Tensor) -> TangentCell | None:
    """The cell of a tensor, of whatever pass; None where it has none."""
    return tensor.__dict__.get(_ATTRIBUTE)


def put_cell(tensor: Tensor, cell: TangentCell) -> None:
    """Hang a cell on a tensor, in place of any it had."""
    tensor.__dict__[_ATTRIBUTE] = cell


def drop_cell(tensor: Tensor) -> None:
    """Take the cell off a tensor, if it has one."""
    tensor.__dict__.pop(_ATTRIBUTE, None)
