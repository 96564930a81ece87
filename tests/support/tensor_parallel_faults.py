"""What else a model that tensor parallelism has cut may meet: each returns "fine", or raises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import reweigh
from reweigh.errors import BatchError, UnsupportedModelError
from support import definition
from support.tensor_parallel import LOSS, MODELS, Parallel, batch, whole


def pair(case: Parallel) -> tuple[nn.Module, nn.Module]:
    """A whole model and a cut one with the same numbers."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(MODELS[case.model]().double())
    case.cut(models[1])
    return models[0], models[1]


def asked_about(rank: int, world: int) -> str:
    """example_scores gives those of the definition; validate says what will run; nothing is left behind."""
    from torch.distributed.tensor import _api, _redistribute

    plain, model = pair(Parallel("words", "sequence"))
    train, clean = batch("words", 5, 1), batch("words", 4, 2)
    right = definition.scores(plain, LOSS, train, clean)
    names = [key for m in model.modules() for key in (*m._forward_hooks, *m._forward_pre_hooks)]
    for backend in ("auto", "forward_mode"):
        mine = reweigh.example_scores(model, LOSS, train, clean, backend=backend)
        torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-9)
    findings = reweigh.validate(model, LOSS, train, clean)
    assert any("forward_mode will run" in str(finding) for finding in findings), findings
    hooks = [key for m in model.modules() for key in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert hooks == names
    for kind in (_api._FromTorchTensor, _api._ToTorchTensor, _redistribute.Redistribute):
        assert "apply" not in vars(kind)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    return "fine"


def losses_in_parts(rank: int, world: int) -> str:
    """A loss that is computed from DTensors may be one."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]).tanh().square().mean(1)

    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6)).double())
    plain, model = models
    style = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, init_device_mesh("cpu", (world,)), {"2": style})
    train, clean = batch("perceptron", 5, 1), batch("perceptron", 4, 2)
    right = definition.scores(plain, loss, train, clean)
    weights = right.clamp(min=0) / right.clamp(min=0).sum()
    weigh = reweigh.Reweighter(model, loss, safeguard=None)
    step = weigh(train, clean)
    assert weigh.backend == "forward_mode", weigh.backend.reason
    torch.testing.assert_close(step.scores, right, rtol=1e-9, atol=1e-9)
    step.loss.backward()
    update = definition.weighted_gradient(plain, loss, train, weights)
    for p, g in zip(model.parameters(), update, strict=True):
        torch.testing.assert_close(whole(p.grad), g, rtol=1e-9, atol=1e-9)
    return "fine"


def parts_of_examples(rank: int, world: int) -> str:
    """Several losses an example have a score each."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return (model(batch[0]) - batch[1].unsqueeze(1)).square()

    plain, model = pair(Parallel())
    train, clean = batch("perceptron", 5, 1), batch("perceptron", 4, 2)
    right = definition.scores(plain, lambda m, b: loss(m, b).flatten(), train, clean).view(5, 4)
    step = reweigh.Reweighter(model, loss)(train, clean)
    torch.testing.assert_close(step.scores, right, rtol=1e-9, atol=1e-9)
    return "fine"


def largest(model: nn.Module, batch: Any) -> Tensor:
    """Over all outputs, wherever they lie: processes take the largest of what each has."""
    return model(batch[0]).amax(1)


def refusals(rank: int, world: int) -> str:
    """Other back-ends, other batches, other draws: one clear error each."""
    _, model = pair(Parallel())
    train, clean = batch("perceptron", 4, 1), batch("perceptron", 4, 2)
    for backend, why in (("ghost", "reads whole layers"), ("double_backward", "second derivative")):
        with pytest.raises(UnsupportedModelError, match=why):
            reweigh.Reweighter(model, LOSS, backend=backend)(train, clean)
    geometry = torch.optim.Adam(model.parameters())
    with pytest.raises(UnsupportedModelError, match="geometry"):
        reweigh.Reweighter(model, LOSS, geometry=geometry)(train, clean)
    other = batch("perceptron", 4, 10 + rank)
    with pytest.raises(BatchError, match="have different batches"):
        reweigh.Reweighter(model, LOSS)(other, clean)
    with pytest.raises(BatchError, match="have different batches"):
        reweigh.Reweighter(model, LOSS)(train, other)
    compiled = reweigh.Reweighter(model, LOSS, compile=True)
    compiled(train, clean)
    assert "tensor parallelism has cut the parameters" in compiled.backend.reason
    handle = dist.new_group([0, 1])
    together = reweigh.core.Group(2, rank, handle=handle)
    with pytest.raises(UnsupportedModelError, match="processes share a batch"):
        reweigh.Reweighter(model, LOSS, group=together)(train, clean)

    _, dropping = pair(Parallel("words, dropout", "heads"))
    torch.manual_seed(rank)
    with pytest.raises(UnsupportedModelError, match="find different losses"):
        reweigh.Reweighter(dropping, LOSS, backend="forward_mode")(
            batch("words", 4, 1), batch("words", 4, 2)
        )

    cut = nn.Sequential(nn.Linear(5, 8)).double()
    style = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(cut, init_device_mesh("cpu", (world,)), {"0": style})
    with pytest.raises(UnsupportedModelError, match="not linear"):
        reweigh.Reweighter(cut, largest, backend="forward_mode")(train, clean)
    return "fine"


def a_part_of_the_processes(rank: int, world: int) -> str:
    """Cut over two of four processes: the user says whether the others train by themselves."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("other", "tensor"))
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(MODELS["perceptron"]().double())
    plain, model = models
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    share = mesh.get_local_rank("other")
    train, clean = batch("perceptron", 4, share), batch("perceptron", 4, 10 + share)
    with pytest.raises(UnsupportedModelError, match="2 of 4 processes"):
        reweigh.Reweighter(model, LOSS)(train, clean)
    copied = MODELS["perceptron"]().double()
    cube = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("copies", "shards", "tensor"))
    parallelize_module(copied, cube["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(copied, mesh=cube["copies", "shards"])
    with pytest.raises(UnsupportedModelError, match="expected one dimension, or all processes"):
        reweigh.Reweighter(copied, LOSS)(train, clean)
    mine = reweigh.example_scores(model, LOSS, train, clean, group=None)
    right = definition.scores(plain, LOSS, train, clean)
    torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-9)
    return "fine"
