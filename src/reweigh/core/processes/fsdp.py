"""Parameters that `torch.distributed.fsdp.fully_shard` has spread over the processes.

Outside a pass each process holds a shard of every parameter. A forward gathers the whole parameters
unit by unit and a backward reduces their gradients to shards again, averaged over the processes; both
through hooks. Only a real `backward()` leaves gradients in shards, so that is how one is taken, with `.grad`
and the hooks of the parameters set aside.

In between, passes compute with leaves of their own, which are the whole parameters: those are what a graph
ends in (shards.py).
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ..model import cut_along, modules_of, unhooked
from ..torch_internals import fsdp_forget_pass, fsdp_groups, fsdp_mesh, fsdp_state


def parts_of(model: nn.Module) -> list[Any]:
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
    """The device mesh over which fully_shard has spread the model; None if it has not."""
    meshes = [fsdp_mesh(group) for part in parts_of(model) for group in fsdp_groups(part)]
    if any(mesh != meshes[0] for mesh in meshes):
        raise UnsupportedModelError(
            f"{type(model).__name__} has parameters that fully_shard has spread over several meshes; "
            f"expected one: pass the same mesh to every fully_shard"
        )
    return meshes[0] if meshes else None


def copies_of(parameter: Any) -> int:
    """How many processes hold the same shard of a parameter, all on its own mesh."""
    mesh, parts = parameter.device_mesh, 1
    for dimension in cut_along(parameter):
        parts *= mesh.size(dimension)
    return int(mesh.size() // parts)


def gather_anew(model: nn.Module) -> None:
    """Drop whole parameters that were kept from an earlier forward: the shards may have moved."""
    for part in parts_of(model):
        part.reshard()


def forget_pass(model: nn.Module) -> None:
    """Let units be as before a pass that an error has ended."""
    for part in parts_of(model):
        fsdp_forget_pass(part)


def compute_types(model: nn.Module) -> set[torch.dtype]:
    """The precisions that a mixed-precision policy computes in."""
    policies = [fsdp_state(part)._mp_policy for part in parts_of(model)]
    return {policy.param_dtype for policy in policies if policy.param_dtype is not None}


def trainable_shards(model: nn.Module) -> list[Tensor]:
    """The trainable shards; `model.parameters()` has whole ones while a pass is under way."""
    groups = [g for part in parts_of(model) for g in fsdp_groups(part)]
    shards = [p.sharded_param for group in groups for p in group.fsdp_params]
    return [shard for shard in shards if shard.requires_grad]


def sharded_gradients(
    model: nn.Module, loss: Tensor, wanted: Sequence[Tensor], *, keep: bool = False
) -> list[Tensor | None]:
    """The gradient of `loss` for each sharded parameter, averaged over the processes, in shards.

    keep: the graph is needed again.
    """
    for part in parts_of(model):
        groups = fsdp_groups(part)
        if not all(group.reduce_grads for group in groups):
            raise UnsupportedModelError(
                "set_requires_gradient_sync(False) keeps whole gradients between backward passes, "
                "with which those of the clean batch would mix; expected gradients reduced at every "
                "step: leave it at True, accumulation works all the same"
            )
    with _set_aside(trainable_shards(model)):
        loss.backward(retain_graph=keep)
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
