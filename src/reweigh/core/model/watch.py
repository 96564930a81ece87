"""Which state the passes of a model write: what a snapshot has to copy.

    buffers, tensors, numpy arrays      by value; what is large only where it is written
    attributes, lists, closure cells    by what they are bound to, where that changes

What changes is found out by looking: before the clean pass of some steps everything is read or copied, and
compared afterwards. In the steps between, small tensors are copied, of large ones the version is watched,
and of the rest only what was seen to change is read.

PyTorch counts the writes to a tensor (its version), with few exceptions: the kernels of BatchNorm and of
fused fake quantisation do not count what they write to buffers, which are small, and writes through
`.data` or a numpy array are not counted either. That is why values are compared, too, whenever everything
is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .holders import Holder, Walk
from .randomness import RandomSource, sources_of

SMALL = 2**20  # bytes: up to here a tensor is copied in every step, written or not
_MOST_SMALL = 64  # tensors besides buffers that are copied in every step
_TO_LOOK = 2**28  # bytes: what is larger, and no buffer, is not copied to be looked at
_PARAMETERS_TO_LOOK = 2**26  # bytes of all parameters together: likewise

Array = np.ndarray[Any, Any]


@dataclass
class Watch:
    """What is known about the state of one model and its loss.

    loss:       the user's.
    modules:    that only the loss knows.
    tensors:    besides buffers, that are copied in every step.
    counted:    besides buffers, of which the version is watched.
    arrays, holders: that passes have been seen to change.
    written:    ids of parameters and large tensors that passes have been seen to write.
    generators: found by walking; drawing: where they were found.
    held:       those in attributes and in `drawing`, when `sources` was made of all.
    recomputes: whether the forward has been seen to enter a checkpoint.
    looked:     whether a pass has been compared since all places were found.
    """

    loss: Any
    modules: list[nn.Module] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    counted: list[Tensor] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    generators: list[Any] = field(default_factory=list)
    drawing: list[Holder] = field(default_factory=list)
    held: tuple[Any, ...] = ()
    sources: list[RandomSource] = field(default_factory=list)
    recomputes: bool = False
    looked: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Watch, (self.loss,)  # a copy looks for itself

    def find(self, modules: Sequence[nn.Module], parameters: Sequence[Tensor]) -> None:
        """Take all places there are; `keep` then leaves those that change."""
        walk = Walk(modules, self.loss)
        self.modules, self.holders, self.generators = walk.modules, walk.holders, walk.generators
        self.sources.clear()
        self.drawing = [holder for holder in walk.holders if holder.generators()]
        self.arrays = [a for a in walk.arrays if a.flags.writeable and a.nbytes <= _TO_LOOK]
        everything = (*modules, *walk.modules)
        buffers = {id(b) for m in everything for b in m._buffers.values()}
        tensors = {
            id(t): t
            for t in (*parameters, *walk.tensors)
            if id(t) not in buffers and not overlaps_itself(t)
        }
        # Rows of a table that are longer than max_norm are rewritten by the forward.
        self.written &= tensors.keys() | buffers
        self.written |= {id(m.weight) for m in everything if m.__dict__.get("max_norm") is not None}
        learnt = sum(size_of(t) for t in tensors.values() if isinstance(t, nn.Parameter))
        self.tensors, self.counted = [], []
        for tensor in tensors.values():
            parameter, size = isinstance(tensor, nn.Parameter), size_of(tensor)
            fits = learnt <= _PARAMETERS_TO_LOOK if parameter else size <= _TO_LOOK
            (self.tensors if fits or id(tensor) in self.written else self.counted).append(tensor)
        self.looked = False

    def draw_from(self, modules: Sequence[nn.Module], held: tuple[Any, ...]) -> None:
        """These generators are in attributes, and where others were, now."""
        self.held, self.sources = held, sources_of(modules, (*held, *self.generators))

    def keep(self, arrays: list[Array], holders: list[Holder], written: set[int]) -> None:
        """These have changed during a pass."""
        self.looked = True
        self.arrays, self.holders, self.written = arrays, holders, self.written | written
        small: list[Tensor] = []
        for tensor in self.tensors:
            if id(tensor) in self.written:
                continue
            if (
                isinstance(tensor, nn.Parameter)
                or size_of(tensor) > SMALL
                or len(small) >= _MOST_SMALL
            ):
                self.counted.append(tensor)
            else:
                small.append(tensor)
        self.tensors = [*(t for t in self.tensors if id(t) in self.written), *small]

    def add(self, lost: list[Tensor]) -> None:
        """These were written although no pass before had written them: copy them from now on."""
        self.written |= set(map(id, lost))
        self.tensors += [t for t in self.counted if id(t) in self.written]
        self.counted = [t for t in self.counted if id(t) not in self.written]


def size_of(tensor: Tensor) -> int:
    """In bytes, of a dense tensor; others count as small."""
    return tensor.numel() * tensor.element_size() if tensor.layout == torch.strided else 0


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether elements share memory, as after expand(): PyTorch refuses to write to such a tensor."""
    if tensor.layout != torch.strided:
        return False
    return any(
        stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
