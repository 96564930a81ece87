"""Where should clean examples come from? Chosen by the data itself, at random, or as suggested.

    python benchmarks/clean_set.py            # run what is missing, cell by cell
    python benchmarks/clean_set.py --table    # results/clean-set/table.md from the cells

Digits and 5,000 images of MNIST (REWEIGH_DATA), 40% wrong labels of either kind, three seeds, an MLP
64-128-10 or 784-128-10, SGD .03 with momentum .9, batches of 100, 500 steps; accuracy on true test
labels at the end. Arms, all drawn from the noisy train rows:

    plain          no clean set
    checked-100    ten rows of each class at random, checked (true labels): what is hoped for
    pseudo-100     ten rows of each class by `pseudo_clean`, nothing checked
    random-K       K rows at random, checked
    balanced-K     K rows at random, alike from what cross-fitted models call each class, checked
    suggested-K    K rows by `suggest_clean`, checked; with the gain it rehearsed for K
"""

from __future__ import annotations

import statistics
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

from cell_store import CellStore, command

RESULTS = Path(__file__).parents[1] / "results" / "clean-set"
FIELDS = ("data", "noise", "arm", "seed")
SIZES = (10, 30)
ARMS = (
    "plain", "checked-100", "pseudo-100", *(f"{how}-{k}" for k in SIZES for how in ("random", "balanced", "suggested")),
)  # fmt: skip
SEEDS = range(3)
STEPS, BATCH, TRAIN, TEST = 500, 100, 5000, 2000


def cells() -> list[dict[str, Any]]:
    grid = product(SEEDS, ("digits", "mnist"), ("uniform", "background"), ARMS)
    return [{"data": d, "noise": n, "arm": a, "seed": s} for s, d, n, a in grid]


def prepared(cell: dict[str, Any]) -> Any:
    """Inputs [n, d] in [0, 1], given and true labels, and the test part."""
    import torch

    from reweigh import data

    source = data.load(cell["data"])
    background = cell["seed"] if cell["noise"] == "background" else 0
    recipe = data.Recipe(
        cell["data"], f"{cell['noise']}_flip", rate=0.4, background=background, clean_per_class=1
    )
    task = data.prepare(source, recipe, seed=cell["seed"])
    train, test = task.train.examples(), task.test.examples()
    draws = torch.Generator().manual_seed(cell["seed"])
    rows = torch.randperm(len(train.targets), generator=draws)[:TRAIN]
    kept = torch.randperm(len(test.targets), generator=draws)[:TEST]
    return (
        train.inputs[rows].flatten(1).float() / source.peak, train.targets[rows],
        task.train.truth[rows], test.inputs[kept].flatten(1).float() / source.peak,
        test.targets[kept],
    )  # fmt: skip


def chosen(arm: str, x: Any, given: Any, truth: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """The clean rows of an arm, and what else is worth keeping."""
    import torch

    import reweigh

    draws = torch.Generator().manual_seed(1000 + seed)
    how, _, size = arm.partition("-")
    if how == "checked":
        order = torch.randperm(len(x), generator=draws)
        rows = [order[truth[order] == c][: int(size) // 10] for c in range(10)]
        return torch.cat(rows), {}
    if how == "random":
        return torch.randperm(len(x), generator=draws)[: int(size)], {}
    if how == "balanced":
        opinion = reweigh.clean_set.cross_fit(x, given, seed=seed).probabilities.argmax(1)
        order = torch.randperm(len(x), generator=draws)
        rows = [order[opinion[order] == c][: int(size) // 10] for c in range(10)]
        return torch.cat(rows), {}
    if how == "pseudo":
        rows = reweigh.pseudo_clean(x, given, per_class=int(size) // 10, seed=seed).rows
        return rows, {"right": float((given[rows] == truth[rows]).float().mean())}
    suggested = reweigh.suggest_clean(x, given, int(size), gains=[int(size)], seed=seed)
    covered = len(truth[suggested.rows].unique())
    return suggested.rows, {"expected": round(suggested.gains[0].gain, 4), "classes": covered}


def run(cell: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    import torch
    from torch import nn
    from torch.nn import functional

    import reweigh

    torch.set_num_threads(1)
    began = time.process_time()
    x, given, truth, test_x, test_y = prepared(cell)
    loss = reweigh.per_example(functional.cross_entropy)
    torch.manual_seed(cell["seed"])
    model = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 10))
    weigh = reweigh.Reweighter(model, loss)
    update = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    kept: dict[str, Any] = {}
    if cell["arm"] != "plain":
        rows, kept = chosen(cell["arm"], x, given, truth, cell["seed"])
        if not cell["arm"].startswith("pseudo"):
            given = given.clone()
            given[rows] = truth[rows]  # what was checked is right from then on
        clean = (x[rows], given[rows])
    for _ in range(STEPS):
        batch = torch.randint(len(x), (BATCH,))
        train = (x[batch], given[batch])
        update.zero_grad()
        value = loss(model, train).mean() if cell["arm"] == "plain" else weigh(train, clean).loss
        value.backward()
        update.step()
    with torch.no_grad():
        accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
    seconds = round(time.process_time() - began, 1)
    return {**cell, "accuracy": round(accuracy, 4), **kept, "seconds": seconds,
            "torch": torch.__version__}  # fmt: skip


def table(rows: dict[tuple[Any, ...], dict[str, Any]]) -> str:
    settings = list(product(("digits", "mnist"), ("uniform", "background")))
    seeds = [s for s in SEEDS if all((*x, a, s) in rows for x in settings for a in ARMS)]
    head = ["| arm | " + " | ".join(f"{d}, {n}" for d, n in settings) + " |", "|---" * 5 + "|"]
    lines = [
        "# Where clean examples come from", "",
        f"`benchmarks/clean_set.py`, {len(seeds)} seeds, torch {next(iter(rows.values()))['torch']}. "
        "Test accuracy in points, mean ± standard deviation over the seeds.", "", *head,
    ]  # fmt: skip

    def values(setting: Any, arm: str, field: str = "accuracy") -> list[float]:
        return [100 * rows[(*setting, arm, s)][field] for s in seeds]

    for arm in ARMS:
        columns = [values(x, arm) for x in settings]
        shown = [f"{statistics.fmean(v):.1f} ± {statistics.stdev(v):.1f}" for v in columns]
        lines.append(f"| {arm} | " + " | ".join(shown) + " |")

    def gaps(setting: Any, arm: str, other: str) -> list[float]:
        return [a - b for a, b in zip(values(setting, arm), values(setting, other), strict=True)]

    lines += [
        "",
        "Suggested minus others at equal k (seeds in which suggested is ahead):",
        "",
        *head,
    ]
    for k, other in product(SIZES, ("random", "balanced")):
        columns = [gaps(x, f"suggested-{k}", f"{other}-{k}") for x in settings]
        shown = [
            f"{statistics.fmean(g):+.1f} ({sum(v > 0 for v in g)} of {len(g)})" for g in columns
        ]
        lines.append(f"| {other}-{k} | " + " | ".join(shown) + " |")
    lines += [
        "",
        "Gain over plain training: as `suggest_clean` rehearsed it / as it was:",
        "",
        *head,
    ]
    for k in SIZES:
        arm = f"suggested-{k}"
        expected = [statistics.fmean(values(x, arm, "expected")) for x in settings]
        true = [statistics.fmean(gaps(x, arm, "plain")) for x in settings]
        shown = [f"{e:.1f} / {t:.1f}" for e, t in zip(expected, true, strict=True)]
        lines.append(f"| {arm} | " + " | ".join(shown) + " |")
    right = [statistics.fmean(values(x, "pseudo-100", "right")) for x in settings]
    lines += ["", "Right labels among the pseudo-clean rows: "
              + ", ".join(f"{d} {n} {r:.1f}%" for (d, n), r in zip(settings, right, strict=True)) + ".", ""]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    command(__doc__, CellStore(RESULTS / "cells.jsonl", FIELDS), cells(), run, table)
