"""Parameters that `torch.distributed.fsdp.fully_shard` has spread over the processes.

Outside a pass each process holds a shard of every parameter. A forward gathers the whole parameters
layer by layer and a backward reduces their gradients to shards again, averaged over the processes; both
through hooks that only a real `backward()` runs. So a gradient is taken by one, with `.grad` and the
hooks of the parameters set aside; and scores come from finite_difference, which needs two forward passes
and shards that it can move, and nothing of what lies between.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..model import modules_of, unhooked
from ..torch_internals import fsdp_groups, fsdp_state


def _parts(model: nn.Module) -> list[Any]:
    """The modules that were given to fully_shard."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")  # not imported: nothing was sharded
    if fsdp is None or not dist.is_initialized():
        return []
    modules = modules_of(model)
    for module in modules:
        if isinstance(module, fsdp.FullyShardedDataParallel):
            raise UnsupportedModelError(
                f"{type(model).__name__} is wrapped in FullyShardedDataParallel, which flattens its "
                f"parameters; expected fully_shard (FSDP2) or DistributedDataParallel"
            )
    return [module for module in modules if isinstance(module, fsdp.FSDPModule)]


def mesh_of(model: nn.Module) -> Any:
    """The device mesh over which the model is sharded; None if it is not."""
    sharded = [p for p in model.parameters() if hasattr(p, "to_local")]
    if not sharded:
        _parts(model)
        return None
    meshes: list[Any] = [getattr(p, "device_mesh", None) for p in sharded]
    if not _parts(model) or any(mesh != meshes[0] for mesh in meshes):
        raise UnsupportedModelError(
            f"{type(model).__name__} has parameters on a device mesh that fully_shard did not put "
            f"there alone (tensor parallelism?); expected fully_shard over one mesh"
        )
    return meshes[0]


def local(tensor: Tensor) -> Tensor:
    """The shard that this process holds, sharing memory; a tensor that is whole as it is."""
    shard: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def gather_anew(model: nn.Module) -> None:
    """Drop whole parameters that were kept from an earlier forward: the shards may have moved."""
    for part in _parts(model):
        part.reshard()


def compute_types(model: nn.Module) -> set[torch.dtype]:
    """The precisions that a mixed-precision policy computes in."""
    policies = [fsdp_state(part)._mp_policy for part in _parts(model)]
    return {policy.param_dtype for policy in policies if policy.param_dtype is not None}


def trainable_shards(model: nn.Module) -> list[Tensor]:
    """The trainable shards; `model.parameters()` has whole ones while a pass is under way."""
    groups = [g for part in _parts(model) for g in fsdp_groups(part)]
    shards = [p.sharded_param for group in groups for p in group.fsdp_params]
    return [shard for shard in shards if shard.requires_grad]


def sharded_gradients(
    model: nn.Module, loss: Tensor, wanted: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradient of `loss` for each sharded parameter, averaged over the processes, in shards."""
    for part in _parts(model):
        groups = fsdp_groups(part)
        if not all(group.reduce_grads for group in groups):
            raise UnsupportedModelError(
                "set_requires_gradient_sync(False) keeps whole gradients between backward passes, "
                "with which those of the clean batch would mix; expected gradients reduced at every "
                "step: leave it at True, accumulation works all the same"
            )
    with _set_aside(trainable_shards(model)):
        loss.backward()
        return [p.grad for p in wanted]


@contextmanager
def _set_aside(shards: Sequence[Tensor]) -> Iterator[None]:
    """No `.grad` and no hook of the shards while the block runs."""
    kept = [(p, p.grad, p._post_accumulate_grad_hooks) for p in shards]
    for p in shards:
        p.grad = None
        p._post_accumulate_grad_hooks = {}
    try:
        with unhooked(shards):
            yield
    finally:
        for p, grad, hooks in kept:
            p.grad = grad
            p._post_accumulate_grad_hooks = hooks
