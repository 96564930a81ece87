"""Steps on 64 and 1,024 GPUs, on paper: python benchmarks/on_paper.py

    all-reduce     2 (N-1)/N bytes / bandwidth + 2 ceil(log2 N) latency
    gather         (N-1) 72 bytes / bandwidth + ceil(log2 N) latency
    plain          compute + what the all-reduce of the gradient takes beyond the backward (2/3)
    reweighed      ratio * compute + the same + the gather + the clean all-reduce beyond the forward
                   (1/3) that hides it under ghost and double_backward; all of it under the others
    first step     one all-reduce more, hidden by nothing: the safeguard looks at the update once
    sharded        7 transfers of (N-1)/N bytes where plain fully_shard has 3, half of them hidden; 5 where
                   both batches go through one pass

Nothing here is measured. The assumptions are the numbers below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BANDWIDTH = 40e9  # bytes a second that a ring of GPUs in many nodes sustains for each of them
LATENCY = 10e-6  # seconds a hop
RATIO = 2.0  # compute of a reweighed step against a plain one, m well below n
NUMBERS = 9 * 8  # bytes a process gives to the gather


@dataclass(frozen=True)
class Model:
    """Parameters, bytes of a gradient that travels, seconds a plain step computes on a GPU."""

    name: str
    gradient: float
    compute: float


MODELS = (
    Model("25 M parameters, float32", 25e6 * 4, 0.10),
    Model("1.3 G parameters, float32", 1.3e9 * 4, 1.00),
)


def all_reduce(gpus: int, size: float) -> float:
    return 2 * (gpus - 1) / gpus * size / BANDWIDTH + 2 * math.ceil(math.log2(gpus)) * LATENCY


def gather(gpus: int) -> float:
    return (gpus - 1) * NUMBERS / BANDWIDTH + math.ceil(math.log2(gpus)) * LATENCY


def seconds(model: Model, gpus: int) -> dict[str, float]:
    reduce = all_reduce(gpus, model.gradient)
    own = max(0.0, reduce - 2 / 3 * model.compute)
    plain = model.compute + own
    common = RATIO * model.compute + own + gather(gpus)
    hidden = common + max(0.0, reduce - model.compute / 3)
    transfer = (gpus - 1) / gpus * model.gradient / BANDWIDTH / 2
    return {
        "plain": plain,
        "ghost": hidden,
        "forward_mode": common + reduce,
        "first step": hidden + reduce,
        "plain, sharded": model.compute + 3 * transfer,
        "sharded": RATIO * model.compute + 7 * transfer + gather(gpus),
        "sharded, one pass": RATIO * model.compute + 5 * transfer + gather(gpus),
    }


def table() -> str:
    columns = list(seconds(MODELS[0], 64))
    lines = [f"| ms a step | GPUs | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for model in MODELS:
        for gpus in (64, 1024):
            cells = " | ".join(f"{1e3 * s:.0f}" for s in seconds(model, gpus).values())
            lines.append(f"| {model.name} | {gpus:,} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
