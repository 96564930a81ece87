"""What training costs beyond its steps: python benchmarks/training.py [--steps N]

A bare loop (batches, weigh, backward, optimizer) takes turns with `fit` on the same batches, for
LeNet on images of MNIST's size. Processor time of one thread between two steps; medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from reweigh.audit import Ledger
from reweigh.data import BatchOptions, PairedBatches, Part, Task, in_order
from reweigh.methods import Problem, View, make
from reweigh.models import build
from reweigh.training import Config, Optimizer, fit
from reweigh.training.criteria import binary_cross_entropy

BATCH = BatchOptions(size=100, clean_size=10)
RATE = 1e-3
EVALUATE, SAVE = 10, 7  # steps between


def images(train: int = 5000, clean: int = 10, test: int = 2000) -> Task:
    total = train + clean + test
    pixels = torch.randint(0, 256, (total, 1, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 2, (total,))

    def part(start: int, count: int) -> Part:
        ids = torch.arange(start, start + count)
        return Part(pixels, ids, labels[ids], labels[ids])

    return Task(
        part(0, train), part(0, 0), part(train, clean), part(train + clean, test), ("4", "9"), 255
    )


def bare(task: Task, method: str, steps: int, stamp: Callable[[], None]) -> None:
    clean = next(iter(in_order(task.clean, size=len(task.clean), options=BATCH)))
    labels = (task.train.targets, task.clean.targets)
    problem = Problem(binary_cross_entropy, 2, *labels, clean, steps)
    weigher, model = make(method, problem), build("lenet", classes=2)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    pairs = PairedBatches(task.train, task.clean, seed=0, options=BATCH)
    for step, pair in enumerate(pairs.until(steps)):
        view = View(model, pair.train, pair.clean, pair.train_ids, step, RATE)
        weigher.weigh(view, weigher.losses).loss.backward()
        sgd.step()
        sgd.zero_grad()
        stamp()


def fitted(task: Task, method: str, steps: int, stamp: Callable[[], None]) -> None:
    optimizer = Optimizer(learning_rate=RATE)
    often = {"evaluate_every": EVALUATE, "checkpoint_every": SAVE}
    config = Config(method, steps=steps, batch=BATCH, optimizer=optimizer, **often)
    with tempfile.TemporaryDirectory() as out:
        fit(lambda: build("lenet", classes=2), task, config, out=out, progress=lambda now: stamp())


def between(run: Callable[..., None], *arguments: object) -> list[float]:
    """The times between steps 1 and 2, 2 and 3, ..."""
    stamps: list[float] = []
    run(*arguments, lambda: stamps.append(time.process_time()))
    return [after - before for before, after in pairwise(stamps)]


def measure(task: Task, method: str, steps: int, record: float) -> str:
    plain, quiet, judged, saved = [], [], [], []
    for _ in range(4):
        plain += between(bare, task, method, steps)[3:]  # the first prove and warm up
        for done, seconds in list(enumerate(between(fitted, task, method, steps), start=1))[3:]:
            if done % EVALUATE and done % SAVE:
                quiet.append(seconds)
            elif done % SAVE:
                judged.append(seconds)
            elif done % EVALUATE:
                saved.append(seconds)
    step, mine, judging, saving = map(statistics.median, (plain, quiet, judged, saved))
    return (
        f"| {method} | {step * 1e3:.1f} ms | {mine / step - 1:+.1%} | {record / step:.1%} "
        f"| {(judging - mine) / step:.1f} steps | {(saving - mine) / step:.1f} steps |"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--steps", type=int, default=100)
    steps = options.parse_args().steps
    torch.set_num_threads(1)
    task = images()
    ledger, ids, values = Ledger(len(task.train)), torch.randperm(5000)[:100], torch.rand(100)

    def records(stamp: Callable[[], None]) -> None:
        for _ in range(500):
            ledger.record(ids, values, values, values)
            stamp()

    record = statistics.median(between(records))
    print("| method | bare step | loop | of it, the ledger | an evaluation | a checkpoint |")
    print("|---|---|---|---|---|---|")
    for method in ("uniform", "reweigh"):
        print(measure(task, method, steps, record), flush=True)


if __name__ == "__main__":
    main()
