"""Does `reweigh_hedged` know when to leave the weights? Many small runs at once, as stacked tensors.

    python benchmarks/hedge.py --texts DIR --seeds 11 12 13      # run what is missing, setting by setting
    python benchmarks/hedge.py --check                           # the same numbers as the library's methods?
    python benchmarks/hedge.py --table                           # results/hedge/table.md from the cells

How runs are stacked, and what the columns are: stacked_runs.py. Data: stacked_tasks.py. Learning rates .02 and .1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cell_store import CellStore
from stacked_check import check
from stacked_runs import HEDGED, accuracies, train
from stacked_tasks import of_seeds

RESULTS = Path(__file__).parents[1] / "results" / "hedge"
FIELDS = ("data", "noise", "rate", "clean", "lr", "seed", "variant")
VARIANTS = ("uniform", "random", "reweigh", "half", *HEDGED)
RIVALS = ("uniform", "random", "reweigh")
SETTINGS = [
    ("cifar", "human_worst", 0.4, 10, 0.02),
    ("cifar", "background_flip", 0.4, 10, 0.02),
    ("digits", "uniform_flip", 0.4, 5, 0.02),
    ("digits", "background_flip", 0.4, 5, 0.02),
    ("digits", "uniform_flip", 0.8, 5, 0.02),
    ("texts", "human_automatic", 0.33, 28, 0.02),
    ("made", "uniform_flip", 0.4, 20, 0.02),
    ("made", "background_flip", 0.4, 20, 0.02),
    ("digits", "uniform_flip", 0.4, 2, 0.02),
    ("digits", "background_flip", 0.4, 2, 0.02),
    ("digits", "pair_flip", 0.4, 2, 0.02),
    ("cifar", "human_worst", 0.4, 2, 0.02),
    ("cifar", "background_flip", 0.4, 2, 0.02),
    ("cifar", "human_worst", 0.4, 50, 0.02),
    ("cifar", "human_worst", 0.4, 100, 0.02),
    ("cifar", "human_worst", 0.4, 10, 0.1),
    ("digits", "background_flip", 0.4, 5, 0.1),
]


def run(setting: tuple[Any, ...], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The cells of one setting: accuracies of all variants and seeds."""
    torch.set_num_threads(1)
    data = of_seeds(setting[:4], seeds)
    ends = train(data, seeds, VARIANTS, setting[4])
    keys = [(*setting, seed, variant) for variant in VARIANTS for seed in seeds]
    return [
        {**dict(zip(FIELDS, key, strict=True)), "accuracy": float(a), "share": float(s)}
        for key, a, s in zip(keys, accuracies(ends.layers, data), ends.shares, strict=True)
    ]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Hedging",
        "",
        "Test accuracy in percent, mean over seeds, at the last step; in brackets the mean share a of the",
        "weights over the run. Made by `benchmarks/hedge.py`; `stacked_runs.py` explains the columns.",
    ]
    for what, seeds in (("Judging seeds, run once", range(31, 41)),):
        part = [row for row in rows if row["seed"] in seeds]
        if part:
            own = sorted({row["seed"] for row in part})
            lines += ["", f"## {what}: {', '.join(map(str, own))}", "", *_part(part)]
    return "\n".join(lines) + "\n"


def _part(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| data | labels | wrong | clean per class | learning rate | "
        + " | ".join(VARIANTS)
        + " |",
        "|---|---|---|---|---|" + "---:|" * len(VARIANTS),
    ]
    misses = []
    for setting in SETTINGS:
        mine = [r for r in rows if tuple(r[name] for name in FIELDS[:5]) == setting]
        if not mine:
            continue
        of = {v: [r for r in mine if r["variant"] == v] for v in VARIANTS}
        mean = {v: 100 * statistics.fmean(r["accuracy"] for r in of[v]) for v in VARIANTS}
        shares = {v: statistics.fmean(r["share"] for r in of[v]) for v in HEDGED}
        shown = [
            f"{mean[v]:.1f}" + (f" ({shares[v]:.2f})" if v in shares else "") for v in VARIANTS
        ]
        name, noise, rate, clean, lr = setting
        lines.append(f"| {name} | {noise} | {rate} | {clean} | {lr} | " + " | ".join(shown) + " |")
        for rival in RIVALS:
            gap = mean[rival] - mean["reweigh_hedged"]
            if gap > 1:
                misses.append(
                    f"- {gap:.1f} points under {rival}: {name}, {noise}, {rate}, {clean}, {lr}"
                )
    return [*lines, "", "Hedged over 1 point under uniform, random or reweigh, on average over seeds:", "",
            *(misses or ["- nowhere"])]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=(1, 2, 3))
    parser.add_argument(
        "--texts", type=Path, help="folder of the texts; without it they are left out"
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.check:
        check()
        return
    store = CellStore(options.out / "cells.jsonl", FIELDS)
    if options.texts:
        os.environ["REWEIGH_TEXTS"] = str(options.texts)
    wanted = [s for s in SETTINGS if s[0] != "texts" or "REWEIGH_TEXTS" in os.environ]
    for setting in () if options.table else wanted:
        if all((*setting, seed, v) in store.rows() for seed in options.seeds for v in VARIANTS):
            continue
        started = time.process_time()
        store.append(run(setting, options.seeds))
        print(*setting, f"{time.process_time() - started:.0f} s", flush=True)
    (options.out / "table.md").write_text(table(list(store.rows().values())))


if __name__ == "__main__":
    main()
