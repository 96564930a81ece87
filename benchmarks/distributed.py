"""Time, exchanges and memory of steps that processes share: python benchmarks/distributed.py [--only PART]

    time       a reweighed step under DistributedDataParallel against a plain one, 1, 2 and 4 processes
    sharded    under fully_shard, plain training and every way to reweigh, 2 and 4 processes:
               moved   what a step gathers, reduces and else exchanges, in sizes of the parameters
               peak    of the tensors that a process holds in a step, with and without a proof: parameters, gradients,
                       activations, what is gathered; not what kernels and exchanges hold inside

Two models: a wide perceptron, n = 64 train and m = 16 clean examples a process, whose clean rows are smaller than
its gradient; and a small transformer, n = 8 and m = 2 sequences of 128 tokens, whose are not. One thread each,
gloo. Plain and reweighed steps of `time` take turns; medians. More processes than cores share them. A part
that is run replaces what --out has of it.
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
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import reweigh
from reweigh.experiments.provenance import commit

WIDTH, DEPTH, N, M, CLASSES = 512, 6, 64, 16, 10
WORDS, TOKENS, TOKENS_WIDE = 1000, 128, 256
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


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.mixed(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.body(self.norms[1](x))


class Transformer(nn.Module):
    """Blocks between a table of words and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, TOKENS_WIDE), nn.Linear(TOKENS_WIDE, CLASSES)
        self.blocks = nn.Sequential(*[Block(TOKENS_WIDE) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(x)).mean(1))


def sentences(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(WORDS, (count, TOKENS)), torch.randint(CLASSES, (count,))


# model: how it is built, the modules that are units besides the whole, a batch of so many, n, m
SHARDED: dict[str, tuple[Any, Any, Any, int, int]] = {
    "perceptron": (
        lambda: network(2 * WIDTH),
        lambda model: [layer for layer in model if isinstance(layer, nn.Linear)],
        lambda count: batch(count, 2 * WIDTH),
        N,
        M,
    ),
    "transformer": (Transformer, lambda model: model.blocks, sentences, 8, 2),
}
WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "finite_difference": {"backend": "finite_difference"},
    "forward_mode": {"backend": "forward_mode"},
    "ghost, two passes": {"backend": "ghost", "one_pass": False},
    "ghost, one pass": {"backend": "ghost", "one_pass": True},
}


class Meter(TorchDispatchMode):
    """Bytes of a step. moved: given to exchanges, times those who get it, by kind. peak: of live tensors."""

    def __init__(self, world: int, held: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.world, self.peak = world, 0
        self.moved = {"gathered": 0, "reduced": 0, "else": 0}
        self._live: dict[int, weakref.ref[Any]] = {}
        self._note(held)

    def _note(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                memory = getattr(tensor, "_local_tensor", tensor).untyped_storage()
                self._live[id(memory)] = weakref.ref(memory)
        found = {key: memory for key, ref in self._live.items() if (memory := ref()) is not None}
        self._live = {key: self._live[key] for key in found}
        # Asked of all each time: fully_shard frees and fills the memory of tensors that live on.
        self.peak = max(self.peak, sum(memory.nbytes() for memory in found.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            name = func.name().removeprefix("c10d::")
            given = args[1] if "gather" in name or "scatter" in name else args[0]
            size = sum(t.nbytes for t in tree_leaves(given) if isinstance(t, torch.Tensor))
            kinds = {"_allgather_base_": "gathered", "_reduce_scatter_base_": "reduced"}
            self.moved[kinds.get(name, "else")] += size * (self.world if "gather" in name else 1)
        out = func(*args, **(kwargs or {}))
        self._note(tree_leaves((args, kwargs, out)))
        return out


def sharded(
    rank: int, world: int, steps: int, *, model: str, way: str, kept: bool
) -> dict[str, float]:
    """Bytes of the third step; its peak, and that of the second, in which a proof is due."""
    build, units, draw, n, m = SHARDED[model]
    torch.manual_seed(0)
    made = build()
    size = sum(p.nbytes for p in made.parameters())
    mesh = init_device_mesh("cpu", (world,))
    for unit in units(made):
        fully_shard(unit, mesh=mesh, reshard_after_forward=not kept)
    fully_shard(made, mesh=mesh, reshard_after_forward=not kept)
    options = WAYS[way]
    weigh = None if options is None else reweigh.Reweighter(made, LOSS, safeguard=None, **options)
    peaks = []
    for _ in range(3):
        train, clean = draw(n), draw(m)
        made.zero_grad()
        with Meter(world, [*made.parameters(), *train, *clean]) as meter:
            if weigh is None:
                plain_step(made, train)
            else:
                reweighed_step(weigh, train, clean)
        peaks.append(meter.peak / 2**20)
    moved = {name: value / size for name, value in meter.moved.items()}
    return {**moved, "peak": peaks[2], "peak_of_proof": peaks[1], "whole": size / 2**20}


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
    """The results as tables in Markdown."""
    lines = ["| processes | plain step, ms | reweighed, ms | ratio |", "|---|---|---|---|"]
    for world, one in result["milliseconds"].items():
        plain, ours = one["plain"], one["reweighed"]
        lines.append(f"| {world} | {plain:.1f} | {ours:.1f} | {ours / plain:.2f} |")
    lines += [
        "",
        "| `fully_shard` | processes | | gathered | reduced | else | moved in all | peak, MiB a process | with a proof |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in result["sharded"]:
        moved = one["gathered"] + one["reduced"] + one["else"]
        name = f"{one['way']}, kept" if one["kept"] else one["way"]
        lines.append(
            f"| {one['model']}, {one['whole']:.0f} MiB | {one['processes']} | {name} "
            f"| {one['gathered']:.2f} | {one['reduced']:.2f} | {one['else']:.2f} | {moved:.2f} "
            f"| {one['peak']:.0f} | {one['peak_of_proof']:.0f} |"
        )
    return "\n".join(lines)


def cells() -> Iterator[dict[str, Any]]:
    """What is measured under fully_shard. kept: reshard_after_forward=False."""
    for model in SHARDED:
        for processes in (2, 4):
            for way in WAYS:
                yield {"model": model, "processes": processes, "way": way, "kept": False}
        yield {"model": model, "processes": 2, "way": "ghost, one pass", "kept": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", choices=("time", "sharded"))
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    mp.get_context("forkserver").set_forkserver_preload(["torch", "reweigh"])
    out, steps = arguments.out, arguments.steps
    out.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    result |= {"cores": os.cpu_count(), "torch": torch.__version__}

    def keep() -> None:
        out.write_text(json.dumps(result, indent=2) + "\n")

    if arguments.only != "sharded":
        result["setting"] = {"width": WIDTH, "depth": DEPTH, "n": N, "m": M, "steps": steps}
        result["milliseconds"] = {}
        for world in (1, 2, 4):
            result["milliseconds"][str(world)] = measured(world, timed, steps)
            keep()
    if arguments.only != "time":
        result["sharded"] = []
        for cell in cells():
            task = functools.partial(
                sharded, model=cell["model"], way=cell["way"], kept=cell["kept"]
            )
            made = measured(cell["processes"], task, steps)
            result["sharded"].append(cell | made | {"commit": commit()})
            keep()
    print(summary(result))


if __name__ == "__main__":
    main()
