"""What a step of each method costs, as a ratio to a plain one: results/methods/cost.json.

    python benchmarks/method_cost.py [--models lenet,resnet20] [--rounds 5] [--out FILE]
    python benchmarks/method_cost.py --methods reweigh_hedged      # one more, beside plain; the others stay

All methods take turns in one process, in processor time on one thread; ratios of medians. Train and
clean batches have 100 examples. A step at which MentorNet's mentor learns is timed by itself and
spread over the 450 steps of an epoch of 45,000 examples. A plain run beforehand is not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import torch
from torch.nn import functional

from reweigh import methods, models

SIZE, TRAIN, CLASSES = 100, 45_000, 10
EPOCH = TRAIN // SIZE
OUT = Path(__file__).parents[1] / "results" / "methods" / "cost.json"


def cross_entropy(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")


class Contestant:
    """One method with a network of its own."""

    def __init__(self, name: str, architecture: str) -> None:
        shape = (1, 28, 28) if architecture == "lenet" else (3, 32, 32)
        labels = torch.arange(SIZE) % CLASSES
        self.train, self.clean = ((torch.randn(SIZE, *shape), labels) for _ in range(2))
        torch.manual_seed(0)
        problem = methods.Problem(
            cross_entropy,
            CLASSES,
            torch.arange(TRAIN) % CLASSES,
            labels,
            self.clean,
            steps=10 * EPOCH,
            right_share=torch.ones(CLASSES),
            pretrained=models.build(architecture, classes=CLASSES),
            confusion=torch.eye(CLASSES),
        )
        self.method = methods.make(name, problem)
        model = models.build(architecture, classes=CLASSES)
        self.model = self.method.wrap(model) if self.method.wrap else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)

    def step(self, number: int) -> float:
        """Take a step; the processor time it took."""
        view = methods.View(self.model, self.train, self.clean, torch.arange(SIZE), number, 1e-4)
        start = time.process_time()
        weighed = self.method.weigh(view, self.method.losses)
        self.optimizer.zero_grad()
        weighed.loss.backward()
        self.optimizer.step()
        return time.process_time() - start


def ratios(architecture: str, rounds: int, names: list[str]) -> dict[str, float]:
    """Each method's step in plain steps."""
    contestants = {name: Contestant(name, architecture) for name in ("uniform", *names)}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 3):
        for name, contestant in contestants.items():
            times[name].append(contestant.step(number))
    medians = {name: statistics.median(seen[2:]) for name, seen in times.items()}  # 2 to warm up
    if "mentornet" in names:
        lesson = statistics.median(contestants["mentornet"].step(k * EPOCH) for k in (1, 2, 3))
        medians["mentornet"] = (medians["mentornet"] * (EPOCH - 1) + lesson) / EPOCH
    return {name: round(value / medians["uniform"], 2) for name, value in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--models", default="lenet,resnet20")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--methods", nargs="+", help="only these; the others' costs are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.methods or list(methods.METHODS)
    kept = json.loads(options.out.read_text())["plain_steps"] if options.methods else {}
    costs_of = {
        name: {**kept.get(name, {}), **ratios(name, options.rounds, names)}
        for name in options.models.split(",")
    }
    document = {
        "command": f"python benchmarks/method_cost.py --models {options.models} --rounds {options.rounds}",
        "machine": platform.machine(),
        "torch": torch.__version__,
        "plain_steps": costs_of,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    for model, costs in costs_of.items():
        print(model, *(f"  {name:22}{cost:5.2f}" for name, cost in costs.items()), sep="\n")


if __name__ == "__main__":
    main()
