"""A session: a model, a loss and settings, checked once; and the two sides of a step put together.

    clean side    G and grad G                              (clean/)
    alignment     losses and scores of the train batch      (backends/)

`Reweighter`, `example_scores` and `validate` are thin users of it. What the back-ends find out about
a model is kept per state of the model (its modes, hooks, precision, what is trainable), since a proof
holds for that state only.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import SettingError, UnsupportedModelError
from .backends import (
    BackendSelection,
    Settled,
    TrainPass,
    numbers_at_once,
    require_chunk,
    require_known,
    same_number,
)
from .clean import CleanSide, clean_gradient, shared_clean_gradient
from .model import (
    Batch,
    Direction,
    Loss,
    MicroBatches,
    ModelView,
    OnCopies,
    Params,
    Watch,
    is_spread,
    mapped,
    muted,
    require_examples,
    require_same_device,
    same_layout,
    select,
)
from .processes import (
    ALONE,
    Group,
    Listener,
    gather_anew,
    group_of,
    inside,
    mesh_of,
    require_group,
    require_same_batch,
    split_groups,
    through,
    wrapper_of,
)
from .proof import Record, next_look
from .torch_internals import PROCESS_SWITCHES, require_usable
from .update import Diagonal, Geometry, diagonal, require_geometry

MOST_STATES = 16  # of a model that keeps changing, the oldest are forgotten


@dataclass(frozen=True)
class TwoSides:
    """Both sides of one step. metric: the optimizer's geometry; None where it is the plain one."""

    view: ModelView
    clean: CleanSide
    settled: Settled
    metric: Diagonal | None
    group: Group


@dataclass
class ModelState:
    """What is known about a model while it stays in one state.

    watch:        the state besides buffers that passes write; looked for when due.
    writes_input: whether its forward writes to the batch in place; None before the first step.
    """

    parameters: dict[str, nn.Parameter]
    selection: BackendSelection
    watch: Record[Watch]
    writes_input: bool | None = None


def _copied(leaf: Any) -> Any:
    return same_layout(leaf) if isinstance(leaf, Tensor) and not leaf.requires_grad else leaf


class Session:
    """Everything a step asks of a model. The arguments are those of `Reweighter`."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        backend: str = "auto",
        params: Params = None,
        chunk: int | None = None,
        epsilon: float | None = None,
        geometry: Geometry = None,
        group: str | Group | None = "auto",
        one_pass: bool | None = None,
    ) -> None:
        if epsilon is not None and not epsilon > 0:
            raise SettingError(f"epsilon={epsilon!r}; expected a positive relative step, or None")
        self.loss, self.model = loss, inside(model)
        self.backend = require_known(backend)
        self._outer, self._wrapper = model, wrapper_of(model)
        self._params, self._chunk, self._epsilon = params, require_chunk(chunk), epsilon
        self._geometry = require_geometry(geometry)
        self._group, self._one_pass = require_group(group), one_pass
        self._states: dict[Hashable, ModelState] = {}

    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are aligned; an error if there is none."""
        return select(self.model, self._params)

    def require_unchunked(self) -> None:
        """Raise if batches are cut into chunks: the micro-batches of a window are its chunks."""
        if self._chunk is not None:
            raise SettingError(
                f"chunk={self._chunk} with a window, whose micro-batches are in memory one at a time "
                f"already; expected chunk=None: pass smaller micro-batches instead"
            )

    def not_compiled(self) -> str | None:
        """Why a step with these settings is not compiled; None if it can be tried."""
        reasons = {
            f"backend={self.backend!r} is run as written": self.backend
            not in ("auto", "ghost", "forward_mode"),
            "only some parameters are aligned (params=)": self._params is not None,
            "a batch is cut into chunks (chunk=)": self._chunk is not None,
            "scores are measured as an optimizer steps (geometry=)": self._geometry is not None,
            "the loss has a form of its own for clean batches": hasattr(self.loss, "clean"),
            "processes share a batch": self._wrapper is not None or self._processes().size > 1,
            "tensor parallelism has cut the parameters": any(
                map(is_spread, self.model.parameters())
            ),
        }
        return next((why for why, holds in reasons.items() if holds), None)

    def through_wrapper(self, step: Callable[[], Tensor]) -> Tensor:
        """The loss that `step()` computes; as one forward of DistributedDataParallel, if any."""
        return step() if self._wrapper is None else through(self._wrapper, step)

    def both_sides(
        self, train: Batch, clean: Batch, *, cheapest: bool = True, proportional: bool = False
    ) -> TwoSides:
        """The clean side, and the train batch along it.

        cheapest:     also in one pass, or with a clean gradient in factors, where that is the same.
        proportional: the weights will be in proportion to the positive scores.
        """
        require_same_device(train, clean)
        group = self._processes()
        view = ModelView(self.model)
        key = view.fingerprint()
        state = self._states.get(key) or self._new_state()
        known = state.watch
        view.watch, view.looking = known.value, known.uses + 1 >= known.next_look
        with muted(view) if view.backward_hooked() else nullcontext():
            room = numbers_at_once(clean) if isinstance(train, MicroBatches) else 0
            summed = proportional and not view.backward_hooked()
            pass_ = TrainPass(view, self.loss, train, summed, room)
            sides = self._sides(pass_, clean, state, group, cheapest)
        known.uses += 1
        if view.looking:
            known.next_look = next_look(known.uses)
        if key not in self._states:  # only now: nothing is kept of a step that failed
            if len(self._states) >= MOST_STATES:
                del self._states[next(iter(self._states))]
            self._states[key] = state
        return sides

    def _sides(
        self, pass_: TrainPass, clean: Batch, state: ModelState, group: Group, cheapest: bool
    ) -> TwoSides:
        view, selection = pass_.view, state.selection
        if view.split and not view.sharded and group.size > 1:
            raise UnsupportedModelError(
                f"{type(self.model).__name__} is cut by tensor parallelism, and {group.size} processes share a "
                f"batch; expected fully_shard along the dimension of the mesh that shares it"
            )
        if view.split and view.looking:
            require_same_batch(view.model, pass_.batch, clean, group)
        alone = cheapest and self._geometry is None and group.size == 1 and not view.split
        ghost = selection.ghost if alone else None
        # Processes that are threads must not wait for each other inside of it.
        waits = group.size > 1 or view.split
        alone_in_process = nullcontext() if waits else PROCESS_SWITCHES
        with alone_in_process, torch.compiler.set_stance("force_eager"):  # see model/modes.py
            # One pass first, from the first step on: a run that is resumed has the same bits.
            whole = self._chunk is None and not isinstance(pass_.batch, MicroBatches)
            if ghost is not None and whole and ghost.one_pass.possible is not False:
                both = ghost.one_pass.align(pass_, clean, state.parameters)
                if both is not None:
                    choice = selection.choice or selection.settle_on_ghost(view)
                    return TwoSides(view, both.clean, Settled(choice, both.alignment), None, group)
            together = group.size > 1 and view.sharded and not view.split
            if together and whole and cheapest and self._geometry is None:
                sides = self._both_in_shards(pass_, clean, state, group)
                if sides is not None:
                    return sides
            if group.size > 1 and view.sharded and isinstance(pass_.batch, MicroBatches):
                parts = len(clean) if isinstance(clean, MicroBatches) else 1
                same_number(group, parts, "the clean batch of a window")
            # The first step finds out whether the forward writes to its input, on a copy.
            loss = self.loss if state.writes_input is False else OnCopies(self.loss)
            if group.size > 1:
                side = self._shared_clean_side(view, loss, clean, state, group, cheapest)
            else:
                require_examples(clean, which="clean")
                cheaper = None if ghost is None else ghost.clean_gradient
                side = clean_gradient(view, loss, clean, state.parameters, cheaper=cheaper)
            if isinstance(loss, OnCopies):
                state.writes_input = loss.written
            direction, metric = side.direction, None
            if self._geometry is not None:
                metric = diagonal(self._geometry, direction, sharded=view.sharded or view.split)
                direction = metric.bend(direction) if metric else direction
            align = self._aligned_on_copies if state.writes_input else self._aligned
            with view.undone_on_error():
                settled = align(pass_, direction, selection, group)
            return TwoSides(view, side, settled, metric, group)

    def _both_in_shards(
        self, pass_: TrainPass, clean: Batch, state: ModelState, group: Group
    ) -> TwoSides | None:
        """Both batches in one pass of a sharded model; None where it takes two."""
        view, selection = pass_.view, state.selection
        ghost = selection.ghost
        if ghost is None or ghost.sharded_one_pass.possible is False:
            return None
        listen = selection.exchanges is None
        engine = ghost.sharded_one_pass
        both = engine.align(pass_, clean, state.parameters, group, listen=listen)
        if both is None:
            return None
        selection.exchanges = False
        choice = selection.choice or selection.settle_on_ghost(view)
        settled = selection.shared(choice, both.alignment, both.clean.direction, group)
        return TwoSides(view, both.clean, settled, None, group)

    def _aligned_on_copies(
        self, pass_: TrainPass, direction: Direction, selection: BackendSelection, group: Group
    ) -> Settled:
        """As `_aligned`, for a forward that writes to its input: each pass gets a copy of its own, and
        the batch looks afterwards as after one forward."""
        if self._chunk is not None or isinstance(pass_.batch, MicroBatches):
            what = "a window" if self._chunk is None else f"chunk={self._chunk}"
            raise UnsupportedModelError(
                f"{what} with a model that writes to its input in place; expected one that "
                f"works on a copy, since chunks may be run again in backward()"
            )
        loss, batch = OnCopies(self.loss), mapped(pass_.batch, _copied)
        settled = self._aligned(TrainPass(pass_.view, loss, batch), direction, selection, group)
        loss.reflect(batch, pass_.batch)
        return settled

    def _aligned(
        self, pass_: TrainPass, direction: Direction, selection: BackendSelection, group: Group
    ) -> Settled:
        """The train batch along `direction`; by ghost at once where it is the choice.

        Ghost proves itself, so that alone, nobody else has to judge or to be asked.
        """
        choice, ghost = selection.choice, selection.ghost
        whole = self._chunk is None and not isinstance(pass_.batch, MicroBatches)
        if choice is not None and ghost is not None and group.size == 1 and whole:
            require_examples(pass_.batch, which="train")
            start = pass_.view.start
            try:
                return Settled(choice, ghost.align(pass_, direction))
            except UnsupportedModelError:  # the model has taken a path it had not taken before
                start.restore()
        return selection.align(pass_, direction, group)

    def _shared_clean_side(
        self, view: ModelView, loss: Loss, clean: Batch, state: ModelState, group: Group,
        cheapest: bool,
    ) -> CleanSide:  # fmt: skip
        """The clean side over all processes; the first one also tells whether the forward talks."""
        selection, ghost, cheaper = state.selection, state.selection.ghost, None
        readable = view.sharded and not view.split
        if ghost is not None and readable and cheapest and self._geometry is None:
            in_factors = ghost.shared_clean_gradient

            def cheaper(reduced: Tensor, m: int, theta: object) -> Sequence[Tensor] | None:
                return in_factors(view, reduced, state.parameters, group)

        listener = None
        if selection.exchanges is None:
            listener = Listener(sharded=view.sharded, split=split_groups(view.model))
        side = shared_clean_gradient(
            view, loss, clean, state.parameters, group, listener=listener, cheaper=cheaper
        )
        if listener is not None:
            selection.exchanges = listener.heard
        return side

    def _new_state(self) -> ModelState:
        require_usable(self.model)
        selection = BackendSelection(
            self.backend, chunk=self._chunk, epsilon=self._epsilon, one_pass=self._one_pass
        )
        return ModelState(self.parameters(), selection, Record(Watch(self.loss)))

    def _processes(self) -> Group:
        """Who shares the batch; where processes run, shards are gathered anew by the next forward."""
        if not (dist.is_available() and dist.is_initialized()):
            return ALONE if isinstance(self._group, str) or self._group is None else self._group
        # Of a sharded model every pass is an exchange: with group=None, too, nobody is by itself.
        group = self._group
        if isinstance(group, str) or (group is None and mesh_of(self.model) is not None):
            group = group_of(self._outer)
        gather_anew(self.model)
        return group or ALONE
