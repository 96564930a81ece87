"""Does it help to measure scores in the optimizer's own geometry? Adam on noisy digits.

    python benchmarks/geometry.py             # run what is missing, cell by cell
    python benchmarks/geometry.py --table     # results/geometry/table.md from the cells

Bundled digits, 40% wrong labels of either kind, 5 clean rows a class, three seeds, an MLP 64-128-10,
Adam at two rates, batches of 100, 500 steps; accuracy on true test labels (mean of the last five of
ten evaluations), and how well the share of steps without weight finds the wrong labels.

    plain       Adam, no weights
    euclidean   scores <grad f_i, grad G>, as by default
    adam        scores <grad f_i, P grad G>: Reweighter(geometry=optimizer)
"""

from __future__ import annotations

import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

from cell_store import CellStore, command

RESULTS = Path(__file__).parents[1] / "results" / "geometry"
FIELDS = ("noise", "lr", "method", "seed")
METHODS, RATES, NOISES, SEEDS = (
    ("plain", "euclidean", "adam"), (1e-3, 1e-2), ("uniform", "background"), range(3),
)  # fmt: skip
STEPS, EVERY = 500, 50


def cells() -> list[dict[str, Any]]:
    grid = product(SEEDS, NOISES, RATES, METHODS)
    return [{"noise": n, "lr": r, "method": m, "seed": s} for s, n, r, m in grid]


def prepared(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Train, clean and test examples: inputs [n, 64] of mean 0 and variance 1, and labels; which of
    the train labels are wrong.
    """
    from reweigh import data

    source = data.load("digits")
    recipe = data.Recipe(
        "digits", f"{cell['noise']}_flip", rate=0.4, background=3, clean_per_class=5
    )
    task = data.prepare(source, recipe, seed=cell["seed"])
    parts = [part.examples() for part in (task.train, task.clean, task.test)]
    scaling = data.Scaling.of(parts[0], source.peak)
    flat = [(scaling(part.inputs, source.peak).flatten(1), part.targets) for part in parts]
    return (*flat, task.train.changed)


def run(cell: dict[str, Any]) -> dict[str, Any]:
    import torch
    from sklearn.metrics import roc_auc_score
    from torch import nn
    from torch.nn import functional

    import reweigh
    from reweigh.audit import Ledger

    torch.set_num_threads(1)
    began = time.process_time()
    train, clean, test, wrong = prepared(cell)
    torch.manual_seed(cell["seed"])
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    loss = reweigh.per_example(functional.cross_entropy)
    update = torch.optim.Adam(model.parameters(), lr=cell["lr"])
    weigh = reweigh.Reweighter(model, loss, geometry=update if cell["method"] == "adam" else None)
    images, labels = train
    ledger, accuracy = Ledger(len(labels)), []
    for step in range(1, STEPS + 1):
        rows = torch.randint(len(labels), (100,))
        batch = (images[rows], labels[rows])
        update.zero_grad()
        if cell["method"] == "plain":
            losses = loss(model, batch)
            losses.mean().backward()
            ledger.record(rows, torch.full((100,), 0.01), losses=losses)
        else:
            weighed = weigh(batch, clean)
            weighed.loss.backward()
            ledger.record(rows, weighed.weights, losses=weighed.losses)
        update.step()
        if step % EVERY == 0:
            with torch.no_grad():
                right = model(test[0]).argmax(1) == test[1]
            accuracy.append(float(right.float().mean()))
    columns = ledger.table()
    suspicion = columns["mean_loss" if cell["method"] == "plain" else "zero_share"]
    return {
        **cell, "accuracy": round(statistics.fmean(accuracy[-5:]), 4),
        "best": round(max(accuracy), 4),
        "auroc": round(float(roc_auc_score(wrong.numpy(), suspicion)), 4),
        "seconds": round(time.process_time() - began, 1), "torch": torch.__version__,
    }  # fmt: skip


def table(rows: dict[tuple[Any, ...], dict[str, Any]]) -> str:
    seeds = [s for s in SEEDS if all((*x, s) in rows for x in product(NOISES, RATES, METHODS))]
    lines = [
        "# Scores in Adam's geometry", "",
        f"`benchmarks/geometry.py`, digits, {len(seeds)} seeds, torch "
        f"{next(iter(rows.values()))['torch']}. Test accuracy in points, mean ± standard deviation; "
        "AUROC of finding the wrong labels.", "",
        "| noise | Adam's rate | scores | test accuracy | best on the way | AUROC |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for noise, rate, method in product(NOISES, RATES, METHODS):
        own = [rows[(noise, rate, method, s)] for s in seeds]
        mean = {f: statistics.fmean(r[f] for r in own) for f in ("accuracy", "best", "auroc")}
        spread = 100 * statistics.stdev(r["accuracy"] for r in own)
        lines.append(
            f"| {noise} | {rate:g} | {method} | {100 * mean['accuracy']:.1f} ± {spread:.1f} "
            f"| {100 * mean['best']:.1f} | {mean['auroc']:.3f} |"
        )
    gaps = [
        100 * (rows[(n, r, "adam", s)]["accuracy"] - rows[(n, r, "euclidean", s)]["accuracy"])
        for n, r, s in product(NOISES, RATES, seeds)
    ]
    lines += ["", f"Adam's geometry minus the plain one, pair by pair: {statistics.fmean(gaps):+.2f} "
              f"points ± {statistics.stdev(gaps):.2f}, ahead in {sum(g > 0 for g in gaps)} of {len(gaps)}.", ""]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    command(__doc__, CellStore(RESULTS / "cells.jsonl", FIELDS), cells(), run, table)
