"""Does training end where it was best? Literal, safeguarded and plain training over a grid.

    python benchmarks/stability.py --jobs 2          # run what is missing, cell by cell
    python benchmarks/stability.py --table           # results/stability/table.md from the cells

Bundled digits, 40% wrong labels; 2 noise types x learning rate .3 .1 .03 .01 x momentum 0 .9 x
batch 50 200 x clean 2 5 20 per class x 3 seeds on an MLP, and a sixth of that (batch 50, 5 clean
per class) on a small CNN with BatchNorm. A cell's final accuracy is the mean of its last five
evaluations and its best the best mean of five in a row, so that the noise of one evaluation of 360
test digits is not taken for a collapse. The safeguard was developed on other seeds (0 to 2),
another split and other draws of the noise, so these cells are fresh.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from cell_store import CellStore

METHODS = ("plain", "literal", "safeguarded")
SEEDS = (10, 11, 12)
RESULTS = Path(__file__).parents[1] / "results" / "stability"
EVERY, WINDOW = 50, 5
FIELDS = ("model", "noise", "lr", "momentum", "batch", "clean", "seed", "method")


def steps(cell: dict[str, Any]) -> int:
    """Enough to settle: more where the learning rate, momentum included, is small."""
    rate = cell["lr"] / (1 - cell["momentum"])
    count = 1000 if rate > 0.2 else 1500 if rate > 0.05 else 2000
    return count // 2 if cell["model"] == "cnn" else count


def cells() -> list[dict[str, Any]]:
    grid = itertools.product(
        ("mlp", "cnn"), ("uniform", "background"), (0.3, 0.1, 0.03, 0.01), (0.9, 0.0), (50, 200),
        (5, 2, 20), SEEDS, METHODS,
    )  # fmt: skip
    every = [dict(zip(FIELDS, cell, strict=True)) for cell in grid]
    kept = [c for c in every if c["model"] == "mlp" or (c["batch"] == 50 and c["clean"] == 5)]
    return sorted(kept, key=lambda c: c["seed"])  # what is done of a cut grid is then of use


def key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[field] for field in FIELDS)


def network(name: str) -> Any:
    from torch import nn

    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, 10),
        )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def run(cell: dict[str, Any]) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    import reweigh
    from reweigh import data

    torch.set_num_threads(1)
    began = time.perf_counter()
    digits = data.load("digits")
    recipe = data.Recipe(
        "digits", f"{cell['noise']}_flip", rate=0.4, clean_per_class=cell["clean"],
        background=cell["seed"] % 10 if cell["noise"] == "background" else 0,
    )  # fmt: skip
    task = data.prepare(digits, recipe, seed=cell["seed"])
    options = data.BatchOptions(size=cell["batch"], clean_size=10 * cell["clean"], peak=digits.peak)
    pairs = data.PairedBatches(task.train, task.clean, seed=cell["seed"], options=options)
    test = task.test.examples()
    inputs = test.inputs.float() / digits.peak
    torch.manual_seed(cell["seed"])
    model = network(cell["model"])
    loss = reweigh.per_example(F.cross_entropy)
    update = torch.optim.SGD(model.parameters(), lr=cell["lr"], momentum=cell["momentum"])
    safeguard = "auto" if cell["method"] == "safeguarded" else None
    weigh = reweigh.Reweighter(model, loss, safeguard=safeguard)
    accuracy, factors = [], []
    for pair in pairs.until(steps(cell)):
        update.zero_grad()
        if cell["method"] == "plain":
            loss(model, pair.train).mean().backward()
        else:
            step = weigh(pair.train, pair.clean)
            step.loss.backward()
            factors.append(float(step.factor))
        update.step()
        if pairs.step % EVERY == 0:
            model.eval()
            with torch.no_grad():
                right = model(inputs).argmax(1) == test.targets
            accuracy.append(round(float(right.float().mean()), 4))
            model.train()
    means = [statistics.fmean(part) for part in windows(accuracy)]
    return {
        **cell, "final": means[-1], "best": max(means), "curve": accuracy[::4],
        "factor": statistics.fmean(factors) if factors else 1.0,
        "seconds": round(time.perf_counter() - began, 1), "torch": torch.__version__,
    }  # fmt: skip


def windows(values: list[float]) -> list[list[float]]:
    return [values[i : i + WINDOW] for i in range(len(values) - WINDOW + 1)]


def attempt(cell: dict[str, Any]) -> dict[str, Any]:
    """A run that fails (NaN at a large learning rate) is a result: accuracy of chance."""
    from reweigh.errors import NonFiniteError

    try:
        return run(cell)
    except NonFiniteError as error:
        return {**cell, "final": 0.1, "best": 0.1, "failed": str(error).split(";")[0]}


def table(rows: dict[tuple[Any, ...], dict[str, Any]]) -> str:
    settings = {key(row)[:-1] for row in rows.values()}
    complete = [s for s in sorted(settings) if all((*s, m) in rows for m in METHODS)]
    lines = [
        "# Stability of the rules", "",
        f"{len(complete)} settings x {len(METHODS)} methods of `benchmarks/stability.py` on "
        f"{platform.machine()}, torch {next(iter(rows.values())).get('torch', '?')}. "
        "Accuracy in points (0-100); final: mean of the last five evaluations.", "",
    ]  # fmt: skip
    for model in ("mlp", "cnn"):
        part = [s for s in complete if s[0] == model]
        if part:
            lines += [f"## {model}: {len(part)} settings", "", *summary(part, rows), ""]
            lines += [*by_rate(part, rows), "", *misses(part, rows), ""]
    return "\n".join(lines)


def gaps(part: list[Any], rows: Any, method: str) -> dict[str, list[tuple[float, Any]]]:
    """How far each run ends under its own best, under plain, and under a stable literal run."""
    by_rival: dict[str, list[tuple[float, Any]]] = {"own": [], "plain": [], "literal": []}
    for s in part:
        mine, plain, literal = (rows[(*s, m)] for m in (method, "plain", "literal"))
        by_rival["own"].append((100 * (mine["best"] - mine["final"]), s))
        by_rival["plain"].append((100 * (plain["final"] - mine["final"]), s))
        # stable: it ends near its best, and it did learn something
        if literal["best"] - literal["final"] <= 0.03 and literal["best"] > 0.5:
            by_rival["literal"].append((100 * (literal["final"] - mine["final"]), s))
    return by_rival


def summary(part: list[Any], rows: Any) -> list[str]:
    lines = [
        "| method | mean final | lowest final | over 3 points under own best (worst) "
        "| under plain (worst) | over 1 point under stable literal (worst) |",
        "|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        finals = [100 * rows[(*s, method)]["final"] for s in part]
        by_rival = gaps(part, rows, method)

        def count(name: str, limit: float, by_rival: Any = by_rival) -> str:
            values = [gap for gap, _ in by_rival[name]]
            over = sum(v > limit + 1e-9 for v in values)
            return f"{over} of {len(values)} ({max(values, default=0):.1f})"

        lines.append(
            f"| {method} | {statistics.fmean(finals):.1f} | {min(finals):.1f} "
            f"| {count('own', 3)} | {count('plain', 0)} | {count('literal', 1)} |"
        )
    return lines


def by_rate(part: list[Any], rows: Any) -> list[str]:
    lines = [
        "| lr | momentum | plain | literal | safeguarded | factor |",
        "|---|---|---|---|---|---|",
    ]
    for lr, momentum in sorted({(s[2], s[3]) for s in part}, reverse=True):
        group = [s for s in part if (s[2], s[3]) == (lr, momentum)]
        means = [100 * statistics.fmean(rows[(*s, m)]["final"] for s in group) for m in METHODS]
        factor = statistics.fmean(rows[(*s, "safeguarded")].get("factor", 1.0) for s in group)
        cells = " | ".join(f"{mean:.1f}" for mean in means)
        lines.append(f"| {lr} | {momentum} | {cells} | {factor:.2f} |")
    return lines


def misses(part: list[Any], rows: Any) -> list[str]:
    by_rival = gaps(part, rows, "safeguarded")
    lines = ["Safeguarded runs that miss a goal:", ""]
    for name, limit in (("own", 3.0), ("plain", 0.0), ("literal", 1.0)):
        for gap, s in sorted(by_rival[name], reverse=True):
            if gap > limit + 1e-9:
                lines.append(f"- {gap:.1f} points under {name}: " + ", ".join(map(str, s[1:])))
    return lines if len(lines) > 2 else ["No safeguarded run misses a goal."]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=["mlp", "cnn"])
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    store = CellStore(arguments.out / "cells.jsonl", FIELDS)
    if not arguments.table:
        wanted = [c for c in cells() if arguments.only in (None, c["model"])]
        store.run_missing(wanted, attempt, jobs=arguments.jobs)
    text = table(store.rows())
    (arguments.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
