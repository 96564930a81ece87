"""What a reweighed step costs, as a ratio to a plain one.

    python benchmarks/step.py [--models mlp,lenet,resnet32] [-n 100] [-m 10,100] [--threads 2]

Plain and reweighed steps take turns in one process, so that whatever else the machine does falls on
all alike; ratios of minima and of medians. Weights of the exact back-ends are compared on the way.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import reweigh
from reweigh import models
from reweigh.core import BACKENDS

loss = reweigh.per_example(F.cross_entropy)


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    if name == "mlp":
        layers = [nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(256, 10)), (1, 28, 28)
    shape = (1, 28, 28) if name == "lenet" else (3, 32, 32)
    return models.build(name, classes=10), shape


def batch(size: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, *shape), torch.randint(10, (size,))


def measure(name: str, n: int, m: int, repeats: int) -> None:
    torch.manual_seed(0)
    model, shape = build(name)
    train, clean = batch(n, shape), batch(m, shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    weighers = {
        "auto": reweigh.Reweighter(model, loss, safeguard=None),
        **{b: reweigh.Reweighter(model, loss, backend=b, safeguard=None) for b in BACKENDS},
    }
    usable = {}
    reference = None
    for label, weigh in weighers.items():
        try:
            weights = weigh(train, clean).weights
        except reweigh.errors.UnsupportedModelError:
            continue
        usable[label] = weigh
        if weigh.backend.exact:
            reference = weights if reference is None else reference
            torch.testing.assert_close(weights, reference, rtol=1e-3, atol=1e-5)

    def plain() -> None:
        optimizer.zero_grad()
        loss(model, train).mean().backward()
        optimizer.step()

    def weighed(weigh: reweigh.Reweighter) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad()
            weigh(train, clean).loss.backward()
            optimizer.step()

        return step

    contest = {"plain": plain, **{label: weighed(w) for label, w in usable.items()}}
    times: dict[str, list[float]] = {label: [] for label in contest}
    for round_ in range(repeats + 2):
        for label, step in contest.items():
            began = time.perf_counter()
            step()
            if round_ >= 2:  # the first two warm caches up
                times[label].append(time.perf_counter() - began)
    base = times["plain"]
    print(f"{name}, n={n}, m={m}: plain {1e3 * min(base):.2f} ms, auto = {usable['auto'].backend}")
    for label, values in list(times.items())[1:]:
        low, middle = min(values) / min(base), statistics.median(values) / statistics.median(base)
        print(f"  {label:18} {low:5.2f} (minimum)  {middle:5.2f} (median)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--models", default="mlp,lenet,resnet32")
    parser.add_argument("-n", type=int, default=100)
    parser.add_argument("-m", default="10,100")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} threads")
    for name in arguments.models.split(","):
        repeats = {"mlp": 200, "lenet": 40}.get(name, 4)
        for m in map(int, arguments.m.split(",")):
            measure(name, arguments.n, m, repeats)


if __name__ == "__main__":
    main()
