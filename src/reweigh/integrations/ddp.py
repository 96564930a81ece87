"""Training through DistributedDataParallel with a loss that was computed inside its forward.

A reweighed step runs the model several times and takes gradients on the way, which the wrapper's
own bookkeeping cannot follow; it only has to know that a forward has happened and that a backward
will come. So the whole step is run as one forward of the wrapper, on the module inside; the
backward of the step's loss then ends in the module's parameters, whose gradients the wrapper
averages over the processes as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn
from torch.nn.parallel import DistributedDataParallel

Result = TypeVar("Result")


def through(model: nn.Module, step: Callable[[nn.Module], Result]) -> Result:
    """`step(module)`, with `module` the one inside; a model that is not wrapped is used as it is."""
    if not isinstance(model, DistributedDataParallel):
        return step(model)
    module = model.module
    own = module.__dict__.get("forward")

    def restore() -> None:
        if own is None:
            module.__dict__.pop("forward", None)
        else:
            module.forward = own

    def once(*args: Any, **options: Any) -> Result:
        restore()  # what the step calls is the module's own forward
        return step(module)

    module.forward = once
    try:
        result: Result = model()
    finally:
        restore()
    return result
