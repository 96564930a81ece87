"""A step on the host whose images lie in memory with their channels last.

    element [n, c, h, w] at   ((n H + h) W + w) C + c     in place of     ((n C + c) H + h) W + w

On the host the compiler asks for this order at every convolution, because convolutions are faster in it. But a tensor
that a backward of a convolution reads as well, it writes in the order which that tensor has in the graph.
Forward and backward of our step are one graph. So every image between two convolutions would be written in
one order and copied to the other. (A compiled plain step is two graphs, and the second one takes over the
order of what the first has written.) Here the step is written down with images in the order that the compiler
asks for, from the first convolution on, and nothing is left to copy.

The numbers are the same, up to the order in which sums are taken. Cost: one copy of the images of a batch.

Invalid where a model depends on the order: a `view` that joins channels and places is an error in this one,
and random numbers are drawn in the order of the memory. Such a step is written down in the order that it has.
For forward_mode only: with ghost, a LeNet was faster with a small clean batch and slower with a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from ..model import on_host
from ..ops import is_random
from ..torch_internals import OpOverload

Graphs = Sequence[GraphModule]


def with_channels_last(write: Callable[[], Graphs]) -> Graphs:
    """What `write()` writes down, with channels last where that is valid."""
    mode = ChannelsLast()
    try:
        with mode:
            graphs = write()
    except Exception:  # of a view, for instance; one that has another cause comes again
        if not mode.changed:
            raise
        return write()
    if not mode.changed or not _draws(graphs):
        return graphs
    plain = write()
    return graphs if _draws(graphs) == _draws(plain) else plain


class ChannelsLast(TorchFunctionMode):
    """Convolutions inside read images with channels last, and so they write them.

    changed: whether any images had another order before.
    """

    changed = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.conv2d, torch.conv_transpose2d) and args and _has_other_order(args[0]):
            args = (args[0].clone(memory_format=torch.channels_last), *args[1:])
            self.changed = True
        return func(*args, **(kwargs or {}))


def _has_other_order(x: Any) -> bool:
    if not isinstance(x, Tensor) or x.ndim != 4 or not on_host(x):
        return False
    # The stride is for images of one channel, which count as contiguous in either order.
    return not x.is_contiguous(memory_format=torch.channels_last) or x.stride(1) != 1


def _draws(graphs: Graphs) -> list[Any]:
    """In which order of memory random numbers are drawn: the strides of all that they fill."""
    drawn: list[Any] = []
    for node in [node for graph in graphs for node in graph.graph.nodes]:
        if isinstance(node.target, OpOverload) and is_random(node.target):
            value = node.meta["val"]
            results = value if isinstance(value, (tuple, list)) else (value,)
            drawn += [(node.target, x.stride()) for x in results if isinstance(x, Tensor)]
    return drawn
