"""Several processes that share a batch, and what one would do on all of it.

Starting processes costs, so a set of them is started once and runs every scenario in turn.
"""

from __future__ import annotations

import datetime
import socket
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = datetime.timedelta(seconds=180)


# A server that has imported these makes the processes: they start at once.
PRELOADED = ["torch", "reweigh", "support.shared_batches", "accelerate", "sklearn.datasets", "support.shared_run",
             "pyarrow.parquet", "safetensors.torch"]  # fmt: skip


def start(target: Any, arguments: tuple[Any, ...], world: int) -> None:
    """Run `target(rank, *arguments)` in so many processes, to their end."""
    mp.get_context("forkserver").set_forkserver_preload(PRELOADED)
    mp.start_processes(target, args=arguments, nprocs=world, start_method="forkserver")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def work(rank: int, world: int, port: int, scenarios: Any, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0, TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    found: dict[str, Any] = {}
    try:
        for name, scenario in scenarios.items():
            found[name] = scenario(rank, world)
            dist.barrier()
        dist.destroy_process_group()
    except Exception:
        found[name] = traceback.format_exc()  # the others may wait for this one: none can go on
    torch.save(found, folder / f"{rank}.pt")


def together(world: int, scenarios: dict[str, Any]) -> dict[str, list[Any]]:
    """For each scenario what it returned in each process, by rank; a text where one has failed."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (world, free_port(), scenarios, Path(folder))
        start(work, arguments, world)
        saved = [
            torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)
        ]
    return {name: [one.get(name, "not reached") for one in saved] for name in scenarios}
