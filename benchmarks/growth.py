"""How the price of a step grows: python benchmarks/growth.py [--threads T] [--seconds S]

Plain and reweighed steps take turns while one size at a time is doubled: the train batch n, the clean
batch m, depth, width, the number of classes. Slopes are those of log time and of log operations over
log size, by least squares; growth of a reweighed step no faster than a plain step's own is the aim.
What the clean batch adds is looked at by itself: the difference to a step with the fewest clean examples
there can be (one; two under batch normalisation), against the number of further ones.

Two networks: linear layers (back-end ghost), and convolutions with batch normalisation (forward_mode).
Writes results/performance/growth.json (goes on from there if cut) and growth.md.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from reweigh import Reweighter, per_example
from reweigh.experiments import keep_large_blocks, machine
from reweigh.files import write_whole

RESULTS = Path(__file__).parents[1] / "results/performance"
BASE = {
    "linear": {"n": 128, "m": 16, "depth": 4, "width": 512, "classes": 10},
    "convolutions": {"n": 64, "m": 8, "depth": 4, "width": 32, "classes": 10},
}
AXES = {
    "linear": {
        "n": (64, 128, 256, 512),
        "m": (16, 32, 64, 128),
        "depth": (2, 4, 8, 16),
        "width": (256, 512, 1024, 2048),
        "classes": (10, 100, 1000, 10000),
    },
    "convolutions": {
        "n": (32, 64, 128, 256),
        "m": (8, 16, 32, 64),
        "depth": (2, 4, 8, 16),
        "width": (16, 32, 64, 128),
        "classes": (10, 100, 1000, 10000),
    },
}
FEWEST = {"linear": 1, "convolutions": 2}  # clean examples: batch normalisation needs two
cross_entropy = per_example(F.cross_entropy)
Sizes = dict[str, int]


class Residual(nn.Module):
    """x + relu(BatchNorm(conv(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + F.relu(self.norm(self.conv(x)))
        return y


def build(kind: str, sizes: Sizes) -> tuple[nn.Module, Callable[[int], Any]]:
    """A network and its batches."""
    depth, width, classes = sizes["depth"], sizes["width"], sizes["classes"]
    if kind == "linear":
        layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
        shape: tuple[int, ...] = (width,)
        model = nn.Sequential(*layers, nn.Linear(width, classes))
    else:
        shape = (3, 16, 16)
        body = [Residual(width) for _ in range(depth)]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
        model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *body, *head)
    return model, lambda n: (torch.randn(n, *shape), torch.randint(classes, (n,)))


def operations(step: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def measure(kind: str, sizes: Sizes, seconds: float) -> dict[str, Any]:
    """Minimum time in milliseconds and operations, of a plain step, of a reweighed one, and of one
    with the fewest clean examples."""
    torch.manual_seed(0)
    model, batch = build(kind, sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    train, clean, fewest = batch(sizes["n"]), batch(sizes["m"]), batch(FEWEST[kind])
    reweighter = Reweighter(model, cross_entropy, safeguard=None)

    def plain() -> None:
        optimizer.zero_grad()
        cross_entropy(model, train).mean().backward()
        optimizer.step()

    def weighed(clean: Any) -> None:
        optimizer.zero_grad()
        reweighter(train, clean).loss.backward()
        optimizer.step()

    steps = {
        "plain": plain,
        "reweighed": lambda: weighed(clean),
        "fewest clean": lambda: weighed(fewest),
    }
    for _ in range(4):
        for step in steps.values():
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["plain"]) < 5:
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - began)
    return {
        "kind": kind,
        **sizes,
        "backend": str(reweighter.backend),
        "milliseconds": {name: 1e3 * min(values) for name, values in times.items()},
        "operations": {name: operations(step) for name, step in steps.items()},
    }


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Of log cost over log size, by least squares."""
    x, y = ([math.log(max(v, 1e-12)) for v in values] for values in (sizes, costs))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def table(document: dict[str, Any]) -> str:
    """Slopes as Markdown."""
    lines = [
        "| network | size doubled | from .. to | plain: time | reweighed: time | plain: operations "
        "| reweighed: operations | ratio of times, first .. last |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, axes in AXES.items():
        for axis, values in axes.items():
            rows = [
                row
                for value in values
                for row in document["rows"]
                if row["kind"] == kind
                and all(row[k] == v for k, v in {**BASE[kind], axis: value}.items())
            ]
            if len(rows) < len(values):
                continue
            cells = []
            for what in ("milliseconds", "operations"):
                one = [row[what]["plain"] for row in rows]
                two = [row[what]["reweighed"] for row in rows]
                if axis == "m":  # of no concern to plain training: what the clean batch adds
                    two = [row[what]["reweighed"] - row[what]["fewest clean"] for row in rows]
                    more = [value - FEWEST[kind] for value in values]
                    cells.append(("", f"{slope(more, two):.2f} (added)"))
                else:
                    cells.append((f"{slope(values, one):.2f}", f"{slope(values, two):.2f}"))
            ratios = [r["milliseconds"]["reweighed"] / r["milliseconds"]["plain"] for r in rows]
            (plain_time, time_), (plain_count, count) = cells
            lines.append(
                f"| {kind} ({rows[0]['backend']}) | {axis} | {values[0]} .. {values[-1]} | {plain_time} "
                f"| {time_} | {plain_count} | {count} | {ratios[0]:.2f} .. {ratios[-1]:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--out", type=Path, default=RESULTS)
    asked = options.parse_args()
    torch.set_num_threads(asked.threads)
    keep_large_blocks()
    path = asked.out / "growth.json"
    here = {**machine(), "threads": asked.threads}
    document: dict[str, Any] = {"machine": here, "rows": []}
    if path.exists():
        document = json.loads(path.read_text())
        if document["machine"] != here:
            raise SystemExit(
                f"{path} is from another machine or other versions; give another --out"
            )
    done = {(row["kind"], *(row[k] for k in BASE[row["kind"]])) for row in document["rows"]}
    asked.out.mkdir(parents=True, exist_ok=True)
    for kind, axes in AXES.items():
        for axis, values in axes.items():
            for value in values:
                sizes = {**BASE[kind], axis: value}
                if (kind, *sizes.values()) in done:
                    continue
                done.add((kind, *sizes.values()))
                document["rows"].append(measure(kind, sizes, asked.seconds))
                write_whole(path, json.dumps(document, indent=1) + "\n")
                print(f"{kind}: {axis} = {value}", flush=True)
    text = table(document)
    write_whole(asked.out / "growth.md", text)
    print(text)


if __name__ == "__main__":
    main()
