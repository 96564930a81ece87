"""Both batches in one pass, where `fully_shard` has spread the parameters.

As one_pass.py: the clean rows follow the train rows, where no example touches another. Here that saves what
is most costly, since every pass gathers the parameters. In sizes of the parameters, where fully_shard gathers
anew for every pass:

    two passes    forward 2, backward 2, clean gradient reduced 1 and gathered 1, update 1      7
    one pass      forward 1, backward 1, clean gradient reduced 1 and gathered 1, update 1      5

and 2 less where factors of the clean rows go round instead of the clean gradient (core/clean/sharded.py). It holds
the clean rows beside the train rows, so it is taken where they are a quarter of the train rows or fewer, or
where the user asks for it. Under the same conditions as on one process, and with the same proofs.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ....errors import UnsupportedModelError
from ...clean import CleanSide, collected_together, factored_together
from ...model import Batch, Direction, require_one_each
from ...processes import Group, Listener, copies_of, forget_pass
from ...proof import Records, require_same_losses
from ...torch_internals import any_global_hook
from ..base import TrainPass
from ..sharded_proof import same_shards
from .engine import BothSides, Layouts, PlaceRecords
from .from_graph import RecordedContact
from .one_pass import Joined, alone, clean_rows, joined, joint_losses, mixes_or_draws, row_wise
from .sharded import ShardedPass, assembled_in_shards, pass_of, told

FEW = 0.25  # clean rows per train row, up to which they may be held beside them


class ShardedOnePass:
    """The engine that weighs both batches in one pass; all processes take it, or none.

    asked: as of `OnePass`.
    """

    def __init__(self, asked: bool | None = None) -> None:
        self.possible = False if asked is False else None  # None: nobody has looked yet
        self._asked = asked
        self._records: PlaceRecords = Records()

    def align(
        self, pass_: TrainPass, clean: Batch, parameters: dict[str, nn.Parameter], group: Group,
        *, listen: bool,
    ) -> BothSides | None:  # fmt: skip
        """Both sides of a step; None, and everything as it was, where it takes two passes.

        listen: nobody has heard yet whether the forward talks between processes.
        """
        view = pass_.view
        if self.possible is False:
            return None
        never = self.possible is None and not self._may_be(pass_)
        drawing = any(map(mixes_or_draws, view.modules))
        batch = None if never or drawing else joined(pass_.batch, clean, self._wanted)
        like = next(iter(parameters.values()))
        mine = [float(never), float(batch is None), 0.0 if batch is None else batch.m]
        # A hook may be on one process only: what one cannot do, all leave.
        nevers, missing, m = group.summed(
            torch.tensor(mine, dtype=torch.float64, device=like.device)
        )()
        self.possible = not nevers
        if nevers or missing or batch is None:
            return None
        copies = copies_of(like)
        direction = Direction(
            tuple(parameters), tuple(parameters.values()), (),
            lambda x: group.summed(x)() / copies,
        )  # fmt: skip
        start = view.start
        try:
            sides = self._run(pass_, batch, direction, group, m, listen)
        except UnsupportedModelError:  # told to all
            self.possible = False
            forget_pass(view.model)
            start.restore()
            return None
        start.compare()
        return sides

    def _may_be(self, pass_: TrainPass) -> bool:
        """Whether model and loss are of the kind that can be run in one pass."""
        view = pass_.view
        known = self._asked or (hasattr(pass_.loss, "judge") and all(map(row_wise, view.modules)))
        return bool(known) and not view.hooked() and not any_global_hook()

    def _wanted(self, n: int, m: int, shapes: Hashable, example: Hashable) -> bool:
        return bool(self._asked) or m <= FEW * n

    def _run(
        self, pass_: TrainPass, batch: Joined, direction: Direction, group: Group, m_of_all: Tensor,
        listen: bool,
    ) -> BothSides:  # fmt: skip
        view, n, m = pass_.view, batch.n, batch.m
        listener = Listener(sharded=True) if listen else None
        with torch.enable_grad(), listener or nullcontext():
            losses = require_one_each(joint_losses(pass_, batch), {n + m}, which="train")
        why = "the loss has several parts an example" if losses.ndim == 2 else ""
        if self._asked and not view.start.holds():
            why = "the forward draws random numbers or writes state"
        if listener is not None and listener.heard:
            why = "the forward talks between processes"
        told(direction, UnsupportedModelError(why) if why else None)
        run = pass_of(view, losses, direction, self._records)
        run.agree(direction)
        if run.separate:
            raise UnsupportedModelError("more needs a gradient than the aligned parameters")
        due = run.due()
        layouts = run.agreed_layouts(direction)
        if due:
            _require_apart(pass_, batch, run, layouts, direction)
        capture = run.capture(layouts, None, keep=due)
        contacts = [c for c in capture.contacts if isinstance(c, RecordedContact)]
        refusal: UnsupportedModelError | None = None
        try:
            layers, outputs = clean_rows(contacts, capture, n, m)
        except UnsupportedModelError as error:
            refusal = error
        told(direction, refusal)
        theta = direction.parameters
        factored = factored_together(layers, theta, group) or {}
        summed = collected_together(run.units, layers, outputs, factored, group)
        if due and not same_shards(view, losses[n:].sum(), summed, direction):
            raise UnsupportedModelError("the clean gradient differs from autograd's")
        scale = group.size / m_of_all
        direction = Direction(direction.names, theta, summed.scaled(scale), direction.total)
        shares = run.shares(capture)
        scores = run.scores(shares, direction)[:n]
        if due:
            run.prove(shares, losses[:n], scores, direction)
        run.remember(layouts)
        values = losses.detach()
        total = group.summed(values[n:].sum().double())

        def mean_loss() -> Tensor:
            return (total() / m_of_all).to(values.dtype)

        return BothSides(
            CleanSide(values[n:], mean_loss, direction),
            assembled_in_shards(
                values[:n], scores, shares, direction, run.reached, n + m
            ),
        )  # fmt: skip


def _require_apart(
    pass_: TrainPass, batch: Joined, run: ShardedPass, layouts: Layouts, direction: Direction
) -> None:
    """Raise, on every process, unless the two batches stay apart: in every result, and in the losses."""
    refusal = None
    for part, mine in ((batch.train, slice(0, batch.n)), (batch.clean, slice(batch.n, None))):
        losses = alone(pass_, part)  # an exchange: by every process, also by one that refuses
        try:
            require_same_losses(pass_.view, losses, run.losses[mine])
        except UnsupportedModelError as error:
            refusal = error
    if not all(layout.dim == 0 and layout.major for layout in layouts):
        refusal = UnsupportedModelError("the rows of the two batches are not one after the other")
    told(direction, refusal)
