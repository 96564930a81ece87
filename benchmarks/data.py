"""What a batch costs: CIFAR batches of 100, cropped, flipped and scaled, against a training step.

    python benchmarks/data.py [--threads 1] [--out results/data]

Batches and ResNet-32 steps take turns on the same cores, so that a busy machine slows both alike;
the figures are medians. The target: a batch under 5% of a step. Takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from reweigh import data, models
from reweigh.errors import DataError

SIZE = 100
TARGET = 0.05


def cifar10() -> tuple[data.Dataset, str]:
    """The stored CIFAR-10, memory-mapped; random bytes of the same shape where there is none."""
    try:
        return data.load("cifar10"), "cifar10, memory-mapped"
    except DataError:
        draw = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (50_000, 3, 32, 32), generator=draw, dtype=torch.uint8)
        examples = data.Examples(images, torch.arange(50_000) % 10)
        classes = tuple(map(str, range(10)))
        return data.Dataset("cifar10", examples, examples, classes), "random bytes, in memory"


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def measured(dataset: data.Dataset, rounds: int) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds of ResNet-32 steps, and of single batches by the way they are drawn."""
    task = data.prepare(dataset, data.preset("cifar10-uniform"), seed=0)
    options = {
        "sliced and scaled": data.BatchOptions(),
        "augmented": data.BatchOptions(augmentation=data.AUGMENTATIONS["standard"]),
        "augmented, balanced": data.BatchOptions(
            augmentation=data.AUGMENTATIONS["standard"], balanced=True, clean_balanced=True
        ),
    }
    sources = {
        name: data.PairedBatches(task.train, task.clean, seed=0, options=o)
        for name, o in options.items()
    }
    model = models.build("resnet32")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = next(sources["augmented"]).train

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(batch.inputs), batch.targets).backward()
        optimizer.step()

    for work in (step, *(lambda s=s: next(s) for s in sources.values())):
        work()
    steps: list[float] = []
    batches: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(rounds):
        steps.append(seconds(step))
        for name, source in sources.items():
            # A pair is two batches of 100.
            batches[name] += [seconds(lambda s=source: next(s)) / 2 for _ in range(5)]
    return steps, batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/data"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)

    dataset, origin = cifar10()
    steps, batches = measured(dataset, given.rounds)
    plain = statistics.median(steps)
    rows = [
        {
            "batch": name,
            "milliseconds": round(1e3 * statistics.median(times), 3),
            "images_per_second": round(SIZE / statistics.median(times)),
            "share_of_resnet32_step": round(statistics.median(times) / plain, 5),
        }
        for name, times in batches.items()
    ]
    result = {
        "data": origin,
        "batch_size": SIZE,
        "resnet32_step_milliseconds": round(1e3 * plain, 1),
        "rows": rows,
        "target_share": TARGET,
        "met": all(row["share_of_resnet32_step"] < TARGET for row in rows),
        "machine": {"processor": processor(), "threads": given.threads},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "batches.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"ResNet-32 step, batch {SIZE}: {1e3 * plain:.0f} ms ({origin})")
    for row in rows:
        print(
            f"{row['batch']:20} {row['milliseconds']:7.2f} ms"
            f"  {row['images_per_second']:7,} images/s"
            f"  {100 * row['share_of_resnet32_step']:.2f}% of a step"
        )
    print("target met" if result["met"] else "TARGET MISSED", f"(under {TARGET:.0%})")


if __name__ == "__main__":
    main()
