"""What sharded models may meet besides plain steps: "fine" if all of it came out as it must."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import reweigh
from reweigh.errors import ReweighWarning, SettingError, UnsupportedModelError
from support.sharded_models import LOSS, Definition, Scaled, Words, batch, sharded, whole


class Dropping(nn.Module):
    """Draws numbers, under a checkpoint or not."""

    def __init__(self, *, checkpointed: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x)


def draws(rank: int, world: int) -> str:
    """The same dropout masks, scores and gradients as of whole parameters, and the same random state after."""
    for checkpointed in (False, True):
        for backend in ("ghost", "forward_mode"):
            found = []
            for in_shards in (False, True):
                torch.manual_seed(0)
                model = Dropping(checkpointed=checkpointed).double()
                if in_shards:
                    sharded(model, init_device_mesh("cpu", (world,)))
                weigh = reweigh.Reweighter(model, LOSS, backend=backend)
                torch.manual_seed(rank)
                for number in range(2):
                    step = weigh(batch("", 5, number + rank), batch("", 4, 100 + number + rank))
                step.loss.backward()
                grads = [whole(p.grad) for p in model.parameters()]
                found.append([step.scores, torch.rand(2), *grads])
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    return "fine"


def one_unit_of_two(rank: int, world: int) -> str:
    """A tied table whose two modules are one unit."""
    for backend in ("ghost", "forward_mode"):
        models = []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(Words(tied=True).double())
        plain, model = models
        mesh = init_device_mesh("cpu", (world,))
        fully_shard([model.words, model.head], mesh=mesh)
        sharded(model, mesh)
        train, clean = batch("words", 5, rank), batch("words", 4, 100 + rank)
        right = Definition.of(plain, train, clean)
        step = reweigh.Reweighter(model, LOSS, backend=backend, safeguard=None)(train, clean)
        step.loss.backward()
        torch.testing.assert_close(step.scores, right.scores, rtol=1e-9, atol=1e-9)
        for p, g in zip(model.parameters(), right.gradient, strict=True):
            torch.testing.assert_close(whole(p.grad), g, rtol=1e-9, atol=1e-9)
    return "fine"


def mixed_precision(rank: int, world: int) -> str:
    """Scores and update of a pass in bfloat16, as exact as the pass."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for backend in ("ghost", "forward_mode"):
        models = []
        for _ in range(2):
            torch.manual_seed(0)
            models.append(Words())
        plain, model = models
        sharded(model, init_device_mesh("cpu", (world,)), mp_policy=policy)
        train, clean = batch("words", 16, rank), batch("words", 8, 100 + rank)
        right = Definition.of(plain, train, clean)
        step = reweigh.Reweighter(model, LOSS, backend=backend, safeguard=None)(train, clean)
        step.loss.backward()
        for mine, true in [
            (step.scores.float(), right.scores),
            *((whole(p.grad), g) for p, g in zip(model.parameters(), right.gradient, strict=True)),
        ]:
            assert (mine - true).norm() < 0.05 * true.norm(), (backend, mine, true)
    return "fine"


@torch.library.custom_op("reweigh_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return 2 * x


doubled.register_autograd(lambda ctx, g: 2 * g)


class Odd(Scaled):
    """Neither read off the graph by ghost nor followed by forward_mode."""

    def forward(self, x: Tensor) -> Tensor:
        return doubled(super().forward(x))


def nothing_exact(rank: int, world: int) -> str:
    """A pass that was given up in the middle leaves the model ready: the update of the next is right."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(Odd(), nn.Linear(4, 3)).double())
    plain, model = models
    sharded(model, init_device_mesh("cpu", (world,)))
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    train, clean = batch("", 5, rank), batch("", 4, 100 + rank)
    with pytest.warns(ReweighWarning, match="nothing exact can run"):
        step = weigh(train, clean)
    step.loss.backward()
    assert "forward_mode refused" in weigh.backend.reason
    right = Definition.of(plain, train, clean)
    for p, g in zip(model.parameters(), right.gradient, strict=True):
        torch.testing.assert_close(whole(p.grad), g, rtol=1e-4, atol=1e-4)
    return "fine"


def refusals(rank: int, world: int) -> str:
    """Parameters that are left out, windows of different lengths: one clear error each."""
    train, clean = batch("", 4, rank), batch("", 4, 100 + rank)
    flat = init_device_mesh("cpu", (world,))
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).double()
    fully_shard(model, mesh=flat, ignored_params={model[0].bias})
    with pytest.raises(UnsupportedModelError, match="are in no unit of fully_shard"):
        reweigh.Reweighter(model, LOSS)(train, clean)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).double()
    fully_shard(model, mesh=flat)
    with pytest.raises(SettingError, match=r"into \[1, 2\] on the processes"):
        reweigh.Reweighter(model, LOSS).window([train] * (1 + rank), clean)
    with pytest.raises(SettingError, match="clean batch of a window"):
        reweigh.Reweighter(model, LOSS).window([train], [clean] * (1 + rank))
    return "fine"


class Centred(nn.Sequential):
    """Takes the mean of the batch away, and hides it from the graph."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out - out.mean(0).detach()


def one_pass_declined(rank: int, world: int) -> str:
    """Two batches that notice each other are not run as one, also where the user has asked for it."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Centred(nn.Linear(5, 4), nn.Linear(4, 3)).double())
    plain, model = models
    sharded(model, init_device_mesh("cpu", (world,)))
    weigh = reweigh.Reweighter(model, LOSS, one_pass=True, safeguard=None)
    train, clean = batch("", 5, rank), batch("", 4, 100 + rank)
    right = Definition.of(plain, train, clean)
    for _ in range(2):
        step = weigh(train, clean)
        torch.testing.assert_close(step.scores, right.scores, rtol=1e-9, atol=1e-9)
    assert "one forward" not in weigh.backend.reason.partition(";")[2], weigh.backend.reason
    step.loss.backward()
    for p, g in zip(model.parameters(), right.gradient, strict=True):
        torch.testing.assert_close(whole(p.grad), g, rtol=1e-9, atol=1e-9)
    return "fine"


def asked_about(rank: int, world: int) -> str:
    """example_scores gives those of the joined batch; validate says what will run."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double())
    plain, model = models
    sharded(model, init_device_mesh("cpu", (world,)))
    train, clean = batch("", 5, rank), batch("", 4, 100 + rank)
    right = Definition.of(plain, train, clean).scores
    for backend in ("auto", "forward_mode"):
        mine = reweigh.example_scores(model, LOSS, train, clean, backend=backend)
        torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-9)
    findings = reweigh.validate(model, LOSS, train, clean)
    assert any("ghost will run" in str(finding) for finding in findings), findings
    return "fine"
