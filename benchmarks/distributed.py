"""Time and memory of steps that processes share: python benchmarks/distributed.py [--out FILE]

    time     a reweighed step under DistributedDataParallel against a plain one, 1, 2 and 4 processes
    memory   the peak of a process above what it held before the model was built, under fully_shard:
             plain training, training with reweighing; and the model's own size

A wide perceptron, n = 64 train and m = 16 clean examples a process, one thread each, gloo. Plain
and reweighed steps take turns; medians. More processes than cores share them.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import socket
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import reweigh

WIDTH, DEPTH, N, M, CLASSES = 512, 6, 64, 16, 10
LOSS = reweigh.per_example(cross_entropy)
OUT = Path(__file__).parents[1] / "results" / "distributed" / "measured.json"


def network(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def batch(count: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, width), torch.randint(CLASSES, (count,))


def plain_step(model: nn.Module, train: Any) -> None:
    LOSS(model, train).mean().backward()


def reweighed_step(weigh: reweigh.Reweighter, train: Any, clean: Any) -> None:
    weigh(train, clean).loss.backward()


def timed(rank: int, world: int, steps: int) -> dict[str, float]:
    model: nn.Module = DistributedDataParallel(network(WIDTH))
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None)
    train, clean = batch(N, WIDTH), batch(M, WIDTH)
    turns: dict[str, Callable[[], None]] = {
        "plain": functools.partial(plain_step, model, train),
        "reweighed": functools.partial(reweighed_step, weigh, train, clean),
    }
    spent: dict[str, list[float]] = {name: [] for name in turns}
    for step in range(steps + 3):
        for name, turn in turns.items():
            model.zero_grad()
            dist.barrier()
            start = time.perf_counter()
            turn()
            if step >= 3:  # the first ones settle on a back-end
                spent[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(values) for name, values in spent.items()}


def remembered(rank: int, world: int, steps: int, *, reweighs: bool) -> dict[str, float]:
    width = 2 * WIDTH
    held = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    model = network(width)
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    Path("/proc/self/clear_refs").write_text("5")  # building it whole is over
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    weigh = reweigh.Reweighter(model, LOSS, safeguard=None, backend="finite_difference")
    for _ in range(steps):
        train, clean = batch(N, width), batch(M, width)
        if reweighs:
            reweighed_step(weigh, train, clean)
        else:
            plain_step(model, train)
        optimizer.step()
        optimizer.zero_grad()
    return {"peak": (_status("VmHWM") - held) / 1024}


def _status(name: str) -> int:
    """Of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def work(rank: int, world: int, port: int, task: Any, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
        timeout=datetime.timedelta(minutes=10),
    )  # fmt: skip
    (Path(folder) / str(rank)).write_text(json.dumps(task(rank, world, steps)))
    dist.destroy_process_group()


def measured(world: int, task: Any, steps: int) -> dict[str, float]:
    """The mean over the processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            work, args=(world, port, task, steps, folder), nprocs=world, start_method="forkserver"
        )
        measures = [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(world)]
    return {name: statistics.mean(one[name] for one in measures) for name in measures[0]}


def summary(result: dict[str, Any]) -> str:
    """The results as a table in Markdown."""
    lines = ["| processes | plain step, ms | reweighed, ms | ratio |", "|---|---|---|---|"]
    for world, one in result["milliseconds"].items():
        plain, ours = one["plain"], one["reweighed"]
        lines.append(f"| {world} | {plain:.1f} | {ours:.1f} | {ours / plain:.2f} |")
    memory = result["fully_shard_mebibytes"]
    lines += ["", "| `fully_shard`, 2 processes | MiB a process |", "|---|---|"]
    lines += [f"| {name} | {value:.0f} |" for name, value in memory.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    mp.get_context("forkserver").set_forkserver_preload(["torch", "reweigh"])
    times = {world: measured(world, timed, arguments.steps) for world in (1, 2, 4)}
    few = max(3, arguments.steps // 3)
    memory = {
        name: measured(2, functools.partial(remembered, reweighs=reweighs), few)["peak"]
        for name, reweighs in (("plain", False), ("reweighed", True))
    }
    size = sum(p.nbytes for p in network(2 * WIDTH).parameters()) / 2**20
    result = {
        "setting": {"width": WIDTH, "depth": DEPTH, "n": N, "m": M, "steps": arguments.steps},
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "milliseconds": times,
        "fully_shard_mebibytes": {**memory, "whole parameters": size, "shard": size / 2},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(summary(json.loads(arguments.out.read_text())))


if __name__ == "__main__":
    main()
