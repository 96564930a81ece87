"""Every method on the same noisy data: digits and MNIST, 40% wrong labels of two kinds, three seeds.

    python benchmarks/methods.py --jobs 2            # run what is missing, cell by cell
    python benchmarks/methods.py --table             # results/methods/table.md from the cells

All methods of a cell share the model's first weights, the order of the batches and the settings
below, which were chosen by one thing: that plain training has begun to memorise the wrong labels by
the end (on MNIST it then knows 80 to 90% of the given labels). No method's own options were tuned here, ours
included. The last step counts: no early stopping, no choice of a best step, unless a method's name
ends in +es. A method that trains a plain model first gets those steps on top.

    digits   scikit-learn's 8x8 digits, standardised; 5 clean a class; MLP 64-256-256-10;
             batch 100, 2,000 steps, SGD .01 with momentum .9
    mnist    1,600 images, pixels in 0..1; 10 clean a class; LeNet with ten outputs;
             batch 50, 800 steps, SGD .02 with momentum .9
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from cell_store import CellStore

RESULTS = Path(__file__).parents[1] / "results" / "methods"
DATA = ("digits", "mnist")
NOISES = ("uniform_flip", "background_flip")
SEEDS = (0, 1, 2)
BACKGROUNDS = (0, 1, 3)
SUFFIXED = ("uniform+ft", "s_model_conf+es+ft")
FIELDS = ("data", "noise", "seed", "method")
IMAGES = 1600
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # two-sided 95%, by degrees of freedom


def cells() -> list[dict[str, Any]]:
    """Digits first, then MNIST; seeds outermost, so that a cut leaves whole seeds."""
    from reweigh.methods import METHODS

    return [
        dict(zip(FIELDS, (data, noise, seed, method), strict=True))
        for data in DATA
        for seed in SEEDS
        for noise in NOISES
        for method in (*METHODS, *SUFFIXED)
    ]


def run(cell: dict[str, Any]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    from reweigh.data import BatchOptions
    from reweigh.training import Config, FineTune, Optimizer, fit

    make_model, task = (_digits if cell["data"] == "digits" else _mnist)(cell)
    digits = cell["data"] == "digits"
    size = 100 if digits else 50
    steps = 2000 if digits else 800
    config = Config(
        method=cell["method"],
        steps=steps,
        seed=cell["seed"],
        batch=BatchOptions(size=size, clean_size=50, scaling=_scaling(cell, task), peak=task.peak),
        optimizer=Optimizer(learning_rate=0.01 if digits else 0.02, momentum=0.9),
        fine_tune=FineTune(steps=steps // 8),
        checkpoint_every=0,
    )
    started = time.perf_counter()
    outcome = fit(make_model, task, config)
    return {
        **cell,
        "test_accuracy": outcome.metrics["test_accuracy"],
        "train_accuracy": outcome.metrics.get("train_accuracy"),
        "seconds": round(time.perf_counter() - started, 1),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }


def _digits(cell: dict[str, Any]) -> Any:
    from reweigh import data, models

    recipe = data.Recipe(
        "digits", cell["noise"], rate=0.4, background=_background(cell), clean_per_class=5
    )
    task = data.prepare(data.load("digits"), recipe, seed=cell["seed"])
    make = models.MLPOptions(inputs=64, hidden=(256, 256), classes=10)
    return (lambda: models.MLP(make)), task


def _mnist(cell: dict[str, Any]) -> Any:
    from dataclasses import replace

    import torch

    from reweigh import data, models

    mnist = data.load("mnist")
    first = slice(cell["seed"] * IMAGES, (cell["seed"] + 1) * IMAGES)
    part = data.Examples(mnist.train.inputs[first], mnist.train.targets[first])
    recipe = data.Recipe(
        "mnist", cell["noise"], rate=0.4, background=_background(cell), clean_per_class=10
    )
    task = data.prepare(replace(mnist, train=part), recipe, seed=cell["seed"])

    def make() -> Any:
        # The same numbers to rounding, and half as long again without it on a CPU.
        return models.build("lenet", classes=10).to(memory_format=torch.channels_last)

    return make, task


def _background(cell: dict[str, Any]) -> int:
    return BACKGROUNDS[cell["seed"]] if cell["noise"] == "background_flip" else 0


def _scaling(cell: dict[str, Any], task: Any) -> Any:
    from reweigh.data import SCALINGS, Scaling

    standardised = cell["data"] == "digits"
    return Scaling.of(task.train.examples(), task.peak) if standardised else SCALINGS["unit"]


def table(rows: list[dict[str, Any]]) -> str:
    """Mean test accuracy in percent, with the half-width of its 95% interval over seeds."""
    columns = _whole(rows)
    accuracies: dict[tuple[str, str], dict[str, list[float]]] = {c: {} for c in columns}
    rows = [row for row in rows if (row["data"], row["noise"]) in accuracies]
    for row in rows:
        accuracies[row["data"], row["noise"]].setdefault(row["method"], []).append(
            100 * row["test_accuracy"]
        )
    methods = sorted(
        {row["method"] for row in rows},
        key=lambda m: -statistics.mean(statistics.mean(accuracies[c][m]) for c in columns),
    )
    best = {c: max((statistics.mean(v), m) for m, v in accuracies[c].items())[1] for c in columns}
    lines = [
        "Test accuracy in percent at the last step, mean and half-width of the 95% interval over "
        "seeds; 40% of the train labels wrong. Made by `benchmarks/methods.py`.",
        "",
        "| method | " + " | ".join(f"{d}, {n.removesuffix('_flip')}" for d, n in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for method in methods:
        shown = [_shown(accuracies[c][method], best[c] == method) for c in columns]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    seeds = {c: sorted({r["seed"] for r in rows if (r["data"], r["noise"]) == c}) for c in columns}
    lines += ["", "Seeds: " + "; ".join(f"{d}, {n}: {seeds[d, n]}" for d, n in columns) + "."]
    return "\n".join(lines) + "\n"


def _whole(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The columns in which no method is missing: a table of some would compare unlike things."""
    there = {(row["data"], row["noise"], row["method"]) for row in rows}
    methods = {cell["method"] for cell in cells()}
    return [(d, n) for d in DATA for n in NOISES if all((d, n, m) in there for m in methods)]


def _shown(values: list[float], best: bool) -> str:
    text = f"{statistics.mean(values):.1f}"
    if len(values) > 1:
        spread = T_975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
        text += f" ± {spread:.1f}"
    return f"**{text}**" if best else text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2)))
    parser.add_argument("--data", choices=DATA)
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    store = CellStore(options.out / "cells.jsonl", FIELDS)
    if not options.table:
        wanted = [c for c in cells() if options.data in (None, c["data"])]
        store.run_missing(wanted, run, jobs=options.jobs)
    (options.out / "table.md").write_text(table(list(store.rows().values())))
    print(f"wrote {options.out / 'table.md'}")


if __name__ == "__main__":
    main()
