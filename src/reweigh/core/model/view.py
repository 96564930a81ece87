"""One look at a model per step: what it is made of, and the state to go back to.

A step runs more forward passes than plain training does. Each extra pass is undone: buffers (running
averages), the states of the random number generators and what else passes write are put
back, so that the whole step leaves what one plain forward on the train batch would leave. All of that
starts from the same moment, so the module tree is walked once and the state is copied once, whatever the
number of passes. Which state that is besides buffers, `watch.py` finds out.

The clean pass draws its dropout masks from a stream of its own, derived from the state before the
step: independent of the masks of the train batch, and the same for every back-end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..torch_internals import (
    FSDP_HOOKS,
    fsdp_groups,
    is_fsdp_part,
    no_fused_recurrence,
    recomputing_under,
    split_spec,
    version_of,
)
from .randomness import GENERATORS, RandomSource, same_state, sources_of
from .watch import SMALL, Watch, overlaps_itself, size_of

_SEEDS = 2**62


class Snapshot:
    """The state at one moment, to go back to.

    watch:   what to copy besides random states and small buffers; None: every buffer, nothing else.
    looking: everything is copied, to be compared by `compare`.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        sources: Sequence[RandomSource],
        watch: Watch | None = None,
        *,
        looking: bool = False,
    ) -> None:
        known = self._watch = watch or Watch(None)
        self._looking = looking
        owners = (*modules, *known.modules)
        self._owners = [(m._buffers, dict(m._buffers)) for m in owners if m._buffers]
        copied, counted = list(known.tensors), list(known.counted)
        for _, buffers in self._owners:
            for buffer in buffers.values():
                if buffer is None or overlaps_itself(buffer):
                    continue
                every = looking or watch is None or size_of(buffer) <= SMALL
                (copied if every or id(buffer) in known.written else counted).append(buffer)
        self._values = [(tensor, tensor.detach().clone(), _version(tensor)) for tensor in copied]
        self._counted = [(tensor, _version(tensor)) for tensor in counted]
        self._arrays = [(array, array.copy()) for array in known.arrays]
        self._places = [(holder, holder.read()) for holder in known.holders]
        self._states = [(source, source.get()) for source in sources]

    def holds(self) -> bool:
        """Whether everything still is as it was."""
        return (
            all(same_state(source.get(), state) for source, state in self._states)
            and all(
                owner.keys() == buffers.keys()
                and all(owner[name] is buffer for name, buffer in buffers.items())
                for owner, buffers in self._owners
            )
            and all(_same(tensor, value) for tensor, value, _ in self._values)
            and all(_version(tensor) == version for tensor, version in self._counted)
            and all(np.array_equal(array, value) for array, value in self._arrays)
            and all(holder.holds(values) for holder, values in self._places)
        )

    def alike(self, close: float) -> bool:
        """As `holds`, for random numbers and tensors, which may differ by `close` (relative)."""
        return all(same_state(source.get(), state) for source, state in self._states) and all(
            tensor.shape == value.shape and _near(tensor, value, close)
            for tensor, value, _ in self._values
        )

    def restore(self) -> None:
        """Put everything back, into the very same tensors."""
        for source, state in self._states:
            source.set(state)
        for tensor, value, _ in self._values:
            if tensor.shape != value.shape:  # resized by the forward
                with torch.no_grad():
                    tensor.resize_(value.shape)
            # `.data`: the version stays, so a graph that has saved the tensor is still valid.
            tensor.data.copy_(value)
        for owner, buffers in self._owners:
            owner.clear()
            owner.update(buffers)
        for array, numbers in self._arrays:
            np.copyto(array, numbers)
        for holder, values in self._places:
            holder.put_back(values)

    def compare(self) -> list[Tensor]:
        """Learn what the pass since this snapshot has changed.

        Returns tensors that were written and not copied: there is no way back for those.
        """
        lost = [tensor for tensor, version in self._counted if _version(tensor) != version]
        watch = self._watch
        if self._looking:
            self._looking = False
            written = {
                id(tensor)
                for tensor, value, version in self._values
                if _version(tensor) != version or not _same(tensor, value)
            }
            watch.keep(
                [array for array, value in self._arrays if not np.array_equal(array, value)],
                [holder for holder, values in self._places if not holder.holds(values)],
                written,
            )
            counted = {id(tensor) for tensor in watch.counted}
            self._values = [
                (tensor, value, version)
                for tensor, value, version in self._values
                if id(tensor) in written or (id(tensor) not in counted and size_of(tensor) <= SMALL)
            ]
        if lost:
            watch.add(lost)
        return lost

    def fork_random_stream(self) -> None:
        """Go on with random numbers that are independent of those that would have come."""
        seed = int(torch.randint(_SEEDS, (), generator=torch.default_generator, device="cpu"))
        for source, _ in self._states:
            source.seed(seed % source.seeds)


class ModelView:
    """A model as it is at the start of a pass.

    modules, parameters: every one once.
    sharded: whether fully_shard has spread the parameters, which passes see whole.
    split:   whether passes see parts of parameters, too: those of tensor parallelism.
    watch:   the state besides buffers that passes are known to write; None: nobody has looked.
    looking: whether everything is to be looked at in this step.
    """

    def __init__(self, model: nn.Module, watch: Watch | None = None) -> None:
        self.model, self.watch, self.looking = model, watch, False
        self.modules = modules_of(model)
        self.parameters = parameters_of(self.modules)
        spread = any(hasattr(p, "to_local") for p in self.parameters)
        parts = [m for m in self.modules if is_fsdp_part(m)] if spread else []
        self.sharded = bool(parts)
        self.split = spread and not (parts and all(map(_whole_in_passes, parts)))
        self._start: Snapshot | None = None

    @property
    def start(self) -> Snapshot:
        """The state before the first pass; it must be asked for before that pass runs."""
        if self._start is None:
            if self.watch is not None and (self.looking or not self.watch.looked):
                self.looking = True
                self.watch.find(self.modules, () if self.sharded or self.split else self.parameters)
            self._start = self.snapshot(looking=self.looking)
        return self._start

    def snapshot(self, *, looking: bool = False) -> Snapshot:
        """The state of now."""
        watch = self.watch
        if watch is None:
            return Snapshot(self.modules, sources_of(self.modules))
        held = (
            *(
                x
                for owner in (*self.modules, watch.loss)
                if not GENERATORS.isdisjoint(map(type, getattr(owner, "__dict__", {}).values()))
                for x in vars(owner).values()
                if type(x) in GENERATORS
            ),
            *(x for holder in watch.drawing for x in holder.generators()),
        )
        if not watch.sources or held != watch.held:  # of generators that were handed over since
            watch.draw_from(self.modules, held)
        return Snapshot(self.modules, watch.sources, watch, looking=looking)

    def again(self) -> ModelView:
        """The model as it is now, with what is known about it."""
        return ModelView(self.model, self.watch)

    @contextmanager
    def isolated(self, *, own_stream: bool) -> Iterator[None]:
        """Run a pass that is undone on leaving, also by an error.

        own_stream: draw from an independent stream. Otherwise the pass draws the very numbers that
        the next pass will draw again (a replay).
        """
        start = self.start
        if own_stream:
            start.fork_random_stream()
        try:
            yield
        except BaseException:
            start.restore()
            raise
        if own_stream:
            self.undo()
        else:
            start.restore()

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Run a pass from the start once more; on leaving, everything is as it is now."""
        start = self.start
        with self.preserved():
            start.restore()
            yield

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """On leaving, everything is as it is now."""
        now = self.snapshot()
        try:
            yield
        finally:
            now.restore()

    def undo(self) -> None:
        """Go back to the start, and learn from the pass what passes write."""
        lost = self.start.compare()
        self.start.restore()
        if lost:
            raise self._begun_to_write(lost[0])

    def _begun_to_write(self, tensor: Tensor) -> UnsupportedModelError:
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        names = [f"{name!r}, " for name, x in named.items() if x is tensor]
        return UnsupportedModelError(
            f"the clean pass has written to {names[0] if names else ''}a tensor of shape "
            f"{tuple(tensor.shape)} ({size_of(tensor) / 2**20:.0f} MB) that no pass had written to before, "
            f"and of which no copy was made for that reason; expected state that is written from the first "
            f"step on, or not at all: from now on it is copied in every step, so call again"
        )

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Go back to the start if the block raises, so that another way can be tried."""
        start = self.start
        try:
            yield
        except BaseException:
            start.restore()
            raise

    def backward_hooked(self) -> bool:
        """Whether a module has hooks that a backward pass calls."""
        return any(m._backward_hooks or m._backward_pre_hooks for m in self.modules)

    def hooked(self) -> bool:
        """Whether somebody watches a module of the model at work."""
        return any(map(_hooked, self.modules))

    def plain_recurrence(self) -> AbstractContextManager[None]:
        """Run recurrent layers step by step; PyTorch runs them fused where it can. Also where a checkpoint
        inside computes anew, whenever that is."""
        context = self.recurrence()
        if context is nullcontext and not self.looking:
            return nullcontext()
        return self._in_recomputations_too(context)

    @contextmanager
    def _in_recomputations_too(
        self, context: Callable[[], AbstractContextManager[None]]
    ) -> Iterator[None]:
        with recomputing_under(context, self.note_recomputation), context():
            yield

    def recurrence(self) -> Callable[[], AbstractContextManager[None]]:
        """What makes the context for recurrent layers; it does not hold this view."""
        recurrent = any(isinstance(module, nn.RNNBase) for module in self.modules)
        return no_fused_recurrence if recurrent else nullcontext

    def note_recomputation(self) -> None:
        """The forward has entered a checkpoint, which computes anew in every backward."""
        if self.watch is not None:
            self.watch.recomputes = True

    def beside_the_step(self) -> AbstractContextManager[None]:
        """For a backward that plain training does not run: what checkpoints write anew is undone."""
        recomputes = self.watch is not None and self.watch.recomputes
        return self.preserved() if recomputes else nullcontext()

    def trained(self) -> set[int]:
        """The ids of the parameters that are trained."""
        return {id(p) for p in self.parameters if p.requires_grad}

    def precision(self, losses: Tensor) -> torch.dtype:
        """The coarsest floating type that takes part: of parameters, losses, autocast."""
        kinds = {p.dtype for p in self.parameters if p.is_floating_point()} | {losses.dtype}
        device = losses.device.type
        if torch.is_autocast_enabled(device):
            kinds.add(torch.get_autocast_dtype(device))
        return max(kinds, key=lambda kind: torch.finfo(kind).eps)

    def fingerprint(self) -> Hashable:
        """All that a proof depends on: modes and hooks of modules, what is trainable, precision."""
        parameters = tuple((id(p), p.requires_grad, p.dtype, p.device) for p in self.parameters)
        device = parameters[0][3].type if parameters else "cpu"
        device = "cpu" if device == "meta" else device  # which has no autocast
        return (
            tuple((id(module), module.training, _hooked(module)) for module in self.modules),
            parameters,
            torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
        )


def _whole_in_passes(part: nn.Module) -> bool:
    """Whether what fully_shard has cut of this module is whole when it has gathered it."""
    entries = (entry for group in fsdp_groups(part) for entry in group.fsdp_params)
    return all(split_spec(entry) is None for entry in entries)


def _hooked(module: nn.Module) -> bool:
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(hooks) and not all(
        str(getattr(hook, "__module__", "")).startswith(FSDP_HOOKS)
        for owner in hooks
        for hook in owner.values()
    )


def _same(tensor: Tensor, value: Tensor) -> bool:
    """Whether the values are equal, as far as PyTorch can compare them."""
    plain = tensor.layout == torch.strided and not hasattr(tensor, "to_local")
    return plain and tensor.shape == value.shape and torch.equal(tensor, value)


def _near(tensor: Tensor, value: Tensor, close: float) -> bool:
    """Whether two tensors are the same up to rounding."""
    if _same(tensor, value) or not tensor.is_floating_point():
        return _same(tensor, value)
    error = torch.linalg.vector_norm(tensor.double() - value.double())
    return bool(error <= close * torch.linalg.vector_norm(value.double()))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else version_of(tensor)


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Every module once, like `model.modules()` but faster: it does not build names."""
    seen: dict[int, nn.Module] = {}
    stack: list[nn.Module] = [model]
    while stack:
        module = stack.pop()
        if id(module) not in seen:
            seen[id(module)] = module
            stack.extend(child for child in module._modules.values() if child is not None)
    return list(seen.values())


def parameters_of(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """Every parameter of the modules once."""
    seen = {id(p): p for m in modules for p in m._parameters.values() if p is not None}
    return list(seen.values())
