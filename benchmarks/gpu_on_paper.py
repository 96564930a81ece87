"""A reweighed step on one GPU, on paper: python benchmarks/gpu_on_paper.py

Counted, on tensors without values, with the counter that `reweigh bench` uses:

    F    operations of the forward of one example
    A    bytes that autograd keeps of it for backward, parameters not counted
    W    bytes of the parameters

With n train and m clean examples, a step of p passes (plain 3; ghost 4 + 3m/n; forward_mode 5 + 3m/n) takes at least

    time    max(p n F / PEAK,  p (W + n A) / BANDWIDTH)
    memory  parameters, gradient, two numbers per parameter for Adam, n A; reweighed: and the clean gradient,
            forward_mode: and the tangents, about as much as the largest activation a few times (not counted)

Nothing here is measured on a GPU. The assumptions are the numbers below: what the maker states for an A100 of
80 GB, in bfloat16. Real steps reach a part of it, plain and reweighed ones alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from reweigh.experiments.bench.cases import CausalBlock
from reweigh.models import build

PEAK, BANDWIDTH, HELD = 312e12, 2.0e12, 80e9  # operations a second, bytes a second, bytes
NUMBER = 2  # bytes, of bfloat16
ADAM = 4 * 3  # bytes a parameter: a float32 copy and two moments


class Decoder(nn.Module):
    """Causal blocks between an embedding and a head, as large as asked for."""

    def __init__(self, width: int, depth: int, words: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(CausalBlock(width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [n, length] to logits."""
        logits: Tensor = self.head(self.norm(self.blocks(self.table(x))))
        return logits


@dataclass(frozen=True)
class Network:
    """passes: of a reweighed step with few clean examples. n, m: examples in its two batches."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], Tensor]
    n: int
    m: int
    backend: str
    passes: int


def pictures() -> Tensor:
    """One picture of CIFAR."""
    return torch.randn(1, 3, 32, 32)


def words(length: int) -> Callable[[], Tensor]:
    """One sequence."""
    return lambda: torch.zeros(1, length, dtype=torch.long)


NETWORKS = (
    Network("ResNet-32", lambda: build("resnet32"), pictures, 100, 10, "forward_mode", 5),
    Network("WRN-28-10", lambda: build("wrn28-10"), pictures, 100, 10, "forward_mode", 5),
    Network("transformer, 110 M", lambda: Decoder(768, 12, 16384), words(512), 32, 4, "ghost", 4),
    Network("transformer, 7 G", lambda: Decoder(4096, 32, 32000), words(2048), 4, 1, "ghost", 4),
)


@dataclass(frozen=True)
class Count:
    """Of one example: operations of a forward, bytes kept for backward. And the parameters."""

    operations: float
    kept: float
    parameters: int


def counted(network: Network) -> Count:
    """By running the network on tensors that have shapes and no values."""
    kept: dict[int, int] = {}
    with torch.device("meta"):
        model = network.make().to(torch.bfloat16)
        own = {id(p) for p in model.parameters()}
        x = network.batch()
        x = x if x.dtype == torch.long else x.to(torch.bfloat16)

        def keep(tensor: Any) -> Any:
            base = tensor if tensor._base is None else tensor._base
            if id(base) not in own:
                storage = base.untyped_storage()
                kept[storage._cdata] = storage.nbytes()
                alive.append(storage)  # or its number would be given to another
            return tensor

        alive: list[Any] = []
        counter = FlopCounterMode(display=False)
        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(x)
        size = sum(p.numel() for p in model.parameters())
    return Count(float(counter.get_total_flops()), float(sum(kept.values())), size)


def row(network: Network) -> str:
    """One line of the table."""
    one = counted(network)
    n, m = network.n, network.m
    weights = NUMBER * one.parameters
    passes = {"plain": 3.0, "ours": network.passes + 3 * m / n}
    times = {
        name: (p * n * one.operations / PEAK, p * (weights + n * one.kept) / BANDWIDTH)
        for name, p in passes.items()
    }
    bound = "arithmetic" if times["plain"][0] > times["plain"][1] else "memory"
    plain, ours = (1e3 * max(times[name]) for name in passes)
    held = (2 * NUMBER + ADAM) * one.parameters + n * one.kept
    fits = "" if held + weights <= HELD else " (does not fit)"
    return (
        f"| {network.name} | {n} + {m} | {network.backend} | {one.parameters / 1e6:,.1f} | "
        f"{one.operations / 1e9:,.2f} | {one.kept / 1e6:,.1f} | {bound} | {plain:,.2f} | {ours:,.2f} | "
        f"{ours / plain:.2f} | {held / 1e9:,.2f} | {(held + weights) / 1e9:,.2f}{fits} |"
    )


def table() -> str:
    """All networks."""
    head = (
        "network", "n + m", "back-end", "parameters, M", "forward, G operations", "kept, MB", "bound by",
        "plain, ms", "reweighed, ms", "ratio", "plain, GB", "reweighed, GB",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(row, NETWORKS)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
