"""Passes that leave no trace, and kernels that every back-end can differentiate.

A step runs more forward passes than plain training does. Each extra one is wrapped in `isolated`,
which puts back the buffers (running averages) and the state of the random number generators, so
that the call as a whole leaves behind what one plain forward on the train batch would.

The clean pass draws its dropout masks from a stream of its own, derived from the state before the
call: independent of the train batch's masks, the same for every back-end, and in whatever order the
passes run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .parameters import modules_of, parameters_of

_SEEDS = 2**62


def _generators(modules: Sequence[nn.Module]) -> list[torch.Generator]:
    found = [torch.default_generator]
    if not torch.cuda.is_initialized():
        return found
    devices = {p.device for p in parameters_of(modules)}
    for device in devices:
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            found.append(torch.cuda.default_generators[index])
    return found


class Snapshot:
    """Buffers and random state of a model at one moment, to go back to."""

    def __init__(self, model: nn.Module) -> None:
        modules = modules_of(model)
        self._owners = [(m._buffers, dict(m._buffers)) for m in modules if m._buffers]
        self._values = [
            (buffer, buffer.clone())
            for _, buffers in self._owners
            for buffer in buffers.values()
            if buffer is not None
        ]
        self._states = [(generator, generator.get_state()) for generator in _generators(modules)]

    def holds(self) -> bool:
        """Whether everything still is as it was."""
        return (
            all(torch.equal(generator.get_state(), state) for generator, state in self._states)
            and all(
                owner.keys() == buffers.keys()
                and all(owner[name] is buffer for name, buffer in buffers.items())
                for owner, buffers in self._owners
            )
            and all(torch.equal(buffer, value) for buffer, value in self._values)
        )

    def restore(self) -> None:
        """Put everything back, into the very same tensors."""
        for generator, state in self._states:
            generator.set_state(state)
        for buffer, value in self._values:
            buffer.data.copy_(
                value
            )  # not marked as written: a graph that has saved it is still right
        for owner, buffers in self._owners:
            owner.clear()
            owner.update(buffers)

    def fork_random_stream(self) -> None:
        """Go on with random numbers that are independent of those that would have come."""
        seed = int(torch.randint(_SEEDS, (), generator=torch.default_generator, device="cpu"))
        for generator, _ in self._states:
            generator.manual_seed(seed)


def hooked(module: nn.Module) -> bool:
    """Whether somebody watches a module at work."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


@contextmanager
def isolated(model: nn.Module, *, own_stream: bool) -> Iterator[None]:
    """Run a pass whose effects on buffers and random state are undone on leaving, even by an error.

    With `own_stream` the pass draws from an independent stream; without, it draws the very numbers
    that the next pass will draw again (a replay).
    """
    before = Snapshot(model)
    if own_stream:
        before.fork_random_stream()
    try:
        yield
    finally:
        before.restore()


@contextmanager
def undone_on_error(model: nn.Module) -> Iterator[None]:
    """Put buffers and random state back if the block raises, so that another way can be tried."""
    before = Snapshot(model)
    try:
        yield
    except BaseException:
        before.restore()
        raise


def eager() -> AbstractContextManager[None]:
    """Run compiled models as written: compiled graphs hide what the back-ends need to see."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def differentiable_kernels(model: nn.Module) -> Iterator[None]:
    """Choose kernels that have forward-mode and second derivatives.

    Fused attention has neither, so it is computed as written; the fused recurrent layers of oneDNN
    and cuDNN neither, so models that contain one run without.
    """
    with sdpa_kernel(SDPBackend.MATH), plain_recurrence(model):
        yield


@contextmanager
def plain_recurrence(model: nn.Module) -> Iterator[None]:
    """Run recurrent layers step by step, where the fused ones hide the steps."""
    if not any(isinstance(module, nn.RNNBase) for module in modules_of(model)):
        yield
        return
    # torch.backends.mkldnn.flags() would do, but it also sets an unrelated flag that warns.
    mkldnn = torch._C._get_mkldnn_enabled()
    cudnn = torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch._C._set_cudnn_enabled(cudnn)


def precision(model: nn.Module, losses: Tensor) -> torch.dtype:
    """The coarsest floating type that takes part: parameters, losses, autocast."""
    kinds = {p.dtype for p in parameters_of(modules_of(model)) if p.is_floating_point()} | {
        losses.dtype
    }
    device = losses.device.type
    if torch.is_autocast_enabled(device):
        kinds.add(torch.get_autocast_dtype(device))
    return max(kinds, key=lambda kind: torch.finfo(kind).eps)
