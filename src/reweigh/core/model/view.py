"""One look at a model per step: what it is made of, and the state to go back to.

A step runs more forward passes than plain training does. Each extra pass is undone: buffers (running
averages) and the states of the random number generators are put back, so that the whole step leaves
what one plain forward on the train batch would leave. All of that starts from the same moment, so the
module tree is walked once and the state is copied once, whatever the number of passes.

The clean pass draws its dropout masks from a stream of its own, derived from the state before the
step: independent of the masks of the train batch, and the same for every back-end.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..torch_internals import no_fused_recurrence
from .randomness import RandomSource, same_state, sources_of

_SEEDS = 2**62


class Snapshot:
    """Buffers and random states at one moment, to go back to."""

    def __init__(self, modules: Sequence[nn.Module], sources: Sequence[RandomSource]) -> None:
        self._owners = [(m._buffers, dict(m._buffers)) for m in modules if m._buffers]
        self._values = [
            (buffer, buffer.clone())
            for _, buffers in self._owners
            for buffer in buffers.values()
            if buffer is not None and not _overlaps_itself(buffer)
        ]
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
            and all(
                buffer.shape == value.shape and torch.equal(buffer, value)
                for buffer, value in self._values
            )
        )

    def restore(self) -> None:
        """Put everything back, into the very same tensors."""
        for source, state in self._states:
            source.set(state)
        for buffer, value in self._values:
            if buffer.shape != value.shape:  # resized by the forward
                with torch.no_grad():
                    buffer.resize_(value.shape)
            # `.data`: the version stays, so a graph that has saved the buffer is still valid.
            buffer.data.copy_(value)
        for owner, buffers in self._owners:
            owner.clear()
            owner.update(buffers)

    def fork_random_stream(self) -> None:
        """Go on with random numbers that are independent of those that would have come."""
        seed = int(torch.randint(_SEEDS, (), generator=torch.default_generator, device="cpu"))
        for source, _ in self._states:
            source.seed(seed % source.seeds)


class ModelView:
    """A model as it is at the start of a pass.

    modules, parameters: every one once. sharded: whether fully_shard has spread the parameters.
    sources: of random numbers, where they are known already.
    """

    def __init__(self, model: nn.Module, sources: Sequence[RandomSource] = ()) -> None:
        self.model, self.sources = model, sources
        self.modules = modules_of(model)
        self.parameters = parameters_of(self.modules)
        self.sharded = any(hasattr(p, "to_local") for p in self.parameters)
        self._start: Snapshot | None = None

    @property
    def start(self) -> Snapshot:
        """The state before the first pass; it must be asked for before that pass runs."""
        if self._start is None:
            self.sources = self.sources or sources_of(self.modules)
            self._start = Snapshot(self.modules, self.sources)
        return self._start

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
        finally:
            start.restore()

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

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Backward hooks of modules are not called inside; of a forward in here, afterwards they are."""
        muted = True

        def wrapped(hook: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *arguments: None if muted else hook(*arguments)

        hooks = [h for m in self.modules for h in (m._backward_hooks, m._backward_pre_hooks) if h]
        kept = [dict(owner) for owner in hooks]
        for owner in hooks:
            owner.update({key: wrapped(hook) for key, hook in owner.items()})
        try:
            yield
        finally:
            muted = False
            for owner, before in zip(hooks, kept, strict=True):
                owner.update(before)

    def hooked(self) -> bool:
        """Whether somebody watches a module of the model at work."""
        return any(map(_hooked, self.modules))

    def plain_recurrence(self) -> AbstractContextManager[None]:
        """Run recurrent layers step by step; PyTorch runs them fused where it can."""
        recurrent = any(isinstance(module, nn.RNNBase) for module in self.modules)
        return no_fused_recurrence() if recurrent else nullcontext()

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


def _hooked(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def _overlaps_itself(buffer: Tensor) -> bool:
    """Whether elements share memory, as after expand(): PyTorch refuses to write to such a tensor."""
    if buffer.layout != torch.strided:
        return False
    return any(
        stride == 0 and size > 1 for size, stride in zip(buffer.shape, buffer.stride(), strict=True)
    )


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
