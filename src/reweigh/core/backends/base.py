"""What every back-end takes and returns, and what it is: the contract of the table."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..model import Batch, Direction, Loss, ModelView
from ..processes import require_same_losses
from ..proof import Proof, Records, score_proof
from ..rounding import tolerance
from .sharded_proof import agreed, sharded_score_proof


@dataclass(frozen=True)
class TrainPass:
    """A training forward that is still to be run: the model as it is now, the loss, the batch.

    proportional: the weights will be in proportion to the positive scores, as the paper's are.
    room:         of a window: how many numbers have gone through the model at once in the clean pass.
    """

    view: ModelView
    loss: Loss
    batch: Batch
    proportional: bool = False
    room: int = 0


@dataclass(frozen=True)
class Alignment:
    """One training forward pass, seen along the clean gradient.

    losses:   [n], or [n, k] for k parts an example; detached.
    scores:   as losses, signed: the inner products of each example's gradient with the direction.
    weighted: weights, as losses -> the scalar sum_i weights_i * losses_i, whose `.backward()` trains the
              model. It belongs to this very pass and costs no second forward.
    proof:    a comparison with autograd that is still to be judged; None where none was due.
    shapes:   of the losses of each micro-batch, where they were put together from several.
    """

    losses: Tensor
    scores: Tensor
    weighted: Callable[[Tensor], Tensor]
    proof: Proof | None = None
    shapes: Sequence[torch.Size] = ()


class Backend(Protocol):
    """A way to the scores, made for one state of one model; it may remember what it finds out.

    cost:          what it adds to a plain step, besides the clean pass.
    proves_itself: it compares itself with autograd; others are compared by `Proven`.
    error:         measured relative error of the scores, of one that is not exact; None: not measured.
    path:          what the last pass did, such as its operations: a new path is proven anew.
    """

    name: str
    exact: bool
    cost: str
    proves_itself: bool = False
    error: float | None = None
    path: Hashable = None

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """Run the pass; raise UnsupportedModelError where the scores would not be right."""
        ...


def proven(backend: Backend) -> Backend:
    """The back-end with proofs, if it claims to be exact and does not prove itself."""
    return Proven(backend) if backend.exact and not backend.proves_itself else backend


class Proven:
    """A back-end with a proof on the first pass of each path, and whenever one is due."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.exact, self.cost = backend.name, backend.exact, backend.cost
        self.proves_itself, self.error, self.path = False, backend.error, backend.path
        self._backend = backend
        self._records: Records[None] = Records()

    def align(self, pass_: TrainPass, direction: Direction) -> Alignment:
        """As the back-end, with `.proof` where it was due."""
        alignment = self._backend.align(pass_, direction)
        path = self.path = self._backend.path
        record, view = self._records.get(path), pass_.view
        due = record is None or record.due()
        # Where parameters are sharded a proof is an exchange: all processes give it, or none.
        if not (agreed(direction, [due])[0] if view.sharded else due):
            assert record is not None
            record.uses += 1
            return alignment
        self._records.looked(path, None)
        found = alignment.weighted, alignment.losses, alignment.scores, direction
        if view.split:
            close = tolerance(view.precision(alignment.losses))
            require_same_losses(
                view.model, alignment.losses, close, lambda flag: agreed(direction, [flag])[0]
            )
        with view.beside_the_step():
            proof = sharded_score_proof(view, *found) if view.sharded else score_proof(*found)
        return replace(alignment, proof=proof)
