"""The cell that a tensor carries during a pass: its tangent, and what else is known of it.

It is an attribute of the tensor, so that it lives as long as the tensor does. Only this file knows the
name of that attribute.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

_ATTRIBUTE = "_reweigh"


class TangentCell:
    """What a tensor carries during a pass. Emptied when the pass ends, even where the tensor lives on."""

    __slots__ = ("__weakref__", "born", "owner", "spent", "tangent", "varies")

    def __init__(self, owner: object, tangent: Tensor | None, varies: bool) -> None:
        self.owner = owner
        self.tangent = tangent
        self.varies = varies  # whether the tensor depends on the batch
        self.born: Any = None  # which operation made the tensor, and as which output, if counted
        self.spent = False  # freed early: the pass before did not ask for it after this point


class Outlived(Exception):
    """A tangent was asked for after it had been freed: this pass differs from the one before."""


def cell_of(tensor: Tensor) -> TangentCell | None:
    """The cell of a tensor, from any pass; None where it has none."""
    return tensor.__dict__.get(_ATTRIBUTE)


def put_cell(tensor: Tensor, cell: TangentCell) -> None:
    """Give a tensor a cell, in place of any it had."""
    tensor.__dict__[_ATTRIBUTE] = cell


def drop_cell(tensor: Tensor) -> None:
    """Take the cell off a tensor, if it has one."""
    tensor.__dict__.pop(_ATTRIBUTE, None)
