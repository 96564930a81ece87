"""A reweighed step inside DistributedDataParallel: two processes, gloo, on the CPU."""

from __future__ import annotations

import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import reweigh
from reweigh.integrations.ddp import through

LOSS = reweigh.per_example(functional.cross_entropy)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(rank: int):
    draws = torch.Generator().manual_seed(rank)
    return [(torch.randn(6, 3, generator=draws), torch.randint(2, (6,), generator=draws))
            for _ in range(2)]  # fmt: skip


def work(rank: int, port: int, out) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    wrapped = DistributedDataParallel(model())
    weigh = None
    for _ in range(2):  # the wrapper must be ready for another step
        wrapped.zero_grad()

        def step(module):
            nonlocal weigh
            weigh = weigh or reweigh.Reweighter(module, LOSS, safeguard=None)
            return weigh(*batches(rank))

        through(wrapped, step).loss.backward()
    torch.save([p.grad for p in wrapped.parameters()], f"{out}/{rank}.pt")
    plain = [p.grad.clone() for p in wrapped.parameters()]
    wrapped.zero_grad()  # and the module's own forward is back
    LOSS(wrapped, batches(rank)[0]).mean().backward()
    assert not torch.equal(plain[0], next(wrapped.parameters()).grad)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_gradient_is_the_mean_of_the_processes(tmp_path):
    mp.spawn(work, args=(free_port(), str(tmp_path)), nprocs=2)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    own = []
    for rank in (0, 1):
        alone = model()
        reweigh.Reweighter(alone, LOSS, safeguard=None)(*batches(rank)).loss.backward()
        own.append([p.grad for p in alone.parameters()])
    for a, b, x, y in zip(*found, *own, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, (x + y) / 2)


def test_a_model_that_is_not_wrapped_is_used_as_it_is():
    bare = model()
    assert through(bare, lambda module: module) is bare
