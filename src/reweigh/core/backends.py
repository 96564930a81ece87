"""The table of back-ends, the choice among them, and the proof that a choice is right.

The proof is the definition itself, transposed: with random factors r, one plain backward gives
grad sum_i r_i f_i, and

    sum_i r_i score_i  =  < grad sum_i r_i f_i , grad G >

must hold. It costs one backward, works where a double backward does not, and catches what no list
of modules shows: in-batch negatives, custom norms, custom autograd functions whose backward is not
the derivative of their forward. A model can change, so it is repeated when the operations do, and
besides at the 2nd, 4th, 8th, ... use and every 128th.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import nn

from ..errors import ReweighError, ReweighWarning, UnsupportedModelError, unknown
from . import double_backward, finite_difference, forward_mode, ghost
from .alignment import Alignment, Backend, Memory
from .ghost import MOST_PATHS
from .graph import unhooked
from .isolation import precision, undone_on_error
from .loss import Batch, Loss
from .parameters import Direction, dot
from .tolerance import due, probe, tolerance


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    align: Backend
    exact: bool
    adds: str  # to the cost of a plain step, besides the clean pass
    proves_itself: bool = False


BACKENDS: dict[str, Entry] = {
    "ghost": Entry(ghost.align, True, "1 forward", proves_itself=True),
    "forward_mode": Entry(forward_mode.align, True, "2 forwards"),
    "double_backward": Entry(double_backward.align, True, "about 5 forwards"),
    "finite_difference": Entry(finite_difference.align, False, "1 forward, approximate"),
}
"""In the order of their cost, which is the order in which "auto" tries them."""


class Choice(str):
    """The name of a back-end, with the reason it was chosen."""

    __slots__ = ("exact", "reason")
    exact: bool
    reason: str

    def __new__(cls, name: str, reason: str) -> Choice:
        """Attach a reason to a name from the table, or to "auto" before the first batch."""
        self = super().__new__(cls, name)
        self.reason = reason
        self.exact = name not in BACKENDS or BACKENDS[name].exact
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.reason


def require_known(name: str) -> str:
    """Return `name` if it is a back-end or "auto"; else an error with a suggestion."""
    if name != "auto" and name not in BACKENDS:
        raise unknown("back-end", name, ["auto", *BACKENDS])
    return name


def run(
    name: str, model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> Alignment:
    """Align with one back-end, proven on the first batch that `memory` sees."""
    entry = BACKENDS[name]
    alignment = entry.align(model, loss, train, direction, memory)
    if entry.exact and not entry.proves_itself:
        proven = memory.setdefault("proven", {})
        if len(proven) > MOST_PATHS:
            proven.clear()
        path = hash((name, memory.get(forward_mode.PATH)))
        proven[path] = proven.get(path, 0) + 1
        if due(proven[path]):
            prove(name, model, alignment, direction)
    return alignment


def choose(
    model: nn.Module, loss: Loss, train: Batch, direction: Direction, memory: Memory
) -> tuple[Choice, Alignment]:
    """Align with the cheapest back-end that is exact for this model, and say why that one."""
    refused: list[str] = []
    for name, entry in BACKENDS.items():
        try:
            with undone_on_error(model):
                alignment = run(name, model, loss, train, direction, memory)
        except UnsupportedModelError as error:
            refused.append(f"{name} refused: {error}")
            continue
        except ReweighError:
            raise  # the user's input is wrong, whatever the back-end
        except Exception as error:
            # Unknown territory for this back-end. If it is the user's own bug, the last one shows it.
            if name == list(BACKENDS)[-1]:
                raise
            refused.append(f"{name} failed: {type(error).__name__}: {error}")
            continue
        why = f"the cheapest exact back-end for {type(model).__name__}, proven on the first batch"
        if not entry.exact:
            why = "nothing exact can run; scores are approximate (relative error about 1e-2)"
            warnings.warn(f"{why}. {' '.join(refused)}", ReweighWarning, stacklevel=4)
        return Choice(name, "; ".join([why, *refused])), alignment
    raise UnsupportedModelError("no back-end can run this model. " + " ".join(refused))


def prove(name: str, model: nn.Module, alignment: Alignment, direction: Direction) -> None:
    """Raise unless the scores agree with a plain backward along random factors."""
    factors = probe(alignment.losses)
    close = tolerance(precision(model, alignment.losses))
    with unhooked(direction.parameters):
        truth = torch.autograd.grad(
            alignment.weighted(factors), direction.parameters, retain_graph=True,
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
    truth = tuple(g.to_dense() if g.is_sparse else g for g in truth)
    gap = (dot(truth, direction.values) - (factors * alignment.scores).sum()).abs()
    bound = close * dot(truth, truth).sqrt() * direction.norm_squared().sqrt()
    # Not `gap > bound`: a NaN must not pass here, unless there is nothing to compare with.
    if not gap <= bound and torch.isfinite(bound):
        raise UnsupportedModelError(
            f"{name} disagrees with autograd on {type(model).__name__} by {float(gap):.3g}; "
            f"expected equal scores: look for a custom autograd.Function or in-place writes to "
            f"views, or use backend='auto'"
        )
