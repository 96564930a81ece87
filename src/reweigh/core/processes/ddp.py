"""A step through DistributedDataParallel.

A reweighed step runs the model several times and takes gradients on the way, which the wrapper's own
bookkeeping cannot follow; it only has to know that a forward has happened and that a backward will
come. So the step is run as one forward of the wrapper, on the module inside. The backward of the step's
loss then ends in the module's parameters, whose gradients the wrapper averages over the processes.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...errors import SettingError
from ..torch_internals import join_enabled


def wrapper_of(model: nn.Module) -> DistributedDataParallel | None:
    """The model as wrapped in DistributedDataParallel, under torch.compile or not; None if it is not."""
    compiled = getattr(model, "_orig_mod", None)  # of torch.compile
    model = model if compiled is None else compiled
    return model if isinstance(model, DistributedDataParallel) else None


def inside(model: nn.Module) -> nn.Module:
    """The module inside the wrapper; a model that is not wrapped as it is."""
    wrapper = wrapper_of(model)
    if wrapper is None:
        return model
    module: nn.Module = wrapper.module
    return module


def through(wrapper: DistributedDataParallel, step: Callable[[], Tensor]) -> Tensor:
    """The loss that `step()` computes, as the result of one forward of the wrapper."""
    if join_enabled(wrapper):
        raise SettingError(
            "a step inside DistributedDataParallel.join(); expected every process in every step: "
            "leave join() out and give processes without examples an empty batch"
        )
    module = wrapper.module
    own = module.__dict__.get("forward")

    def restore() -> None:
        if own is None:
            module.__dict__.pop("forward", None)
        else:
            module.forward = own

    def once(*args: Any, **options: Any) -> Tensor:
        restore()  # what the step calls is the module's own forward
        return step()

    module.forward = once
    try:
        loss: Tensor = wrapper()
    finally:
        restore()
    return loss
