"""Does `reweigh_hedged` know when to leave the weights? Many small runs at once, as stacked tensors.

    python benchmarks/hedge.py --texts DIR --seeds 11 12 13      # run what is missing, setting by setting
    python benchmarks/hedge.py --check                           # the same numbers as the library's methods?
    python benchmarks/hedge.py --table                           # results/hedge/table.md from the cells

All variants and seeds of a setting train together, K perceptrons with two hidden layers of 64 as tensors
[K, ...]: a tenth of the time of one run after the other. The rule, the safeguard and the hedge are written
out here once more, and `--check` compares a run of them with the library. Batch 100, all clean rows
in every step, 600 steps, SGD .02 (and .1) with momentum .9, cut to a tenth at four fifths.

    plain, reweigh, half          half: a fixed at 1/2
    hedged                        `reweigh_hedged`
    asked                         judged by the rows that weigh, too: all clean rows do both
    unsorted                      the rows that judge are drawn without regard to class

Data as in `method_grid.py`, and cifar: 4,000 images of CIFAR-10 by features that were not learnt from
labels (`cifar_features.py`), with the worst labels people gave them, or background flips.
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
from hedge_runs import BATCH, HEDGED, WIDTH, Draws, Rows, first_layers, forward, train
from method_grid import task_of
from torch.nn import functional

RESULTS = Path(__file__).parents[1] / "results" / "hedge"
FIELDS = ("data", "noise", "rate", "clean", "lr", "seed", "variant")
VARIANTS = ("plain", "reweigh", "half", "hedged", "asked", "unsorted")
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
    ("cifar", "human_worst", 0.4, 50, 0.02),
    ("cifar", "human_worst", 0.4, 10, 0.1),
    ("digits", "background_flip", 0.4, 5, 0.1),
]


def rows_of(setting: tuple[Any, ...], seed: int) -> Rows:
    name, noise, rate, clean, _ = setting
    if name == "cifar":
        from cifar_features import cifar_rows

        return Rows(*cifar_rows(noise, rate, clean, seed), 10)
    cell = dict(zip(("data", "noise", "rate", "clean", "seed"), (*setting[:4], seed), strict=True))
    task = task_of(cell)
    parts = [part.examples() for part in (task.train, task.clean, task.test)]
    inputs = [p.inputs.float().flatten(1) / task.peak for p in parts]
    if name == "digits":
        mean, std = inputs[0].mean(), inputs[0].std()
        inputs = [(x - mean) / std for x in inputs]
    both = [(x, p.targets) for x, p in zip(inputs, parts, strict=True)]
    return Rows(*both, len(task.classes))


def run(setting: tuple[Any, ...], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The cells of one setting: accuracies of all variants and seeds."""
    torch.set_num_threads(1)
    data = [rows_of(setting, seed) for seed in seeds]
    fewest = min(len(d.clean[1]) for d in data)
    data = [
        Rows(d.train, (d.clean[0][:fewest], d.clean[1][:fewest]), d.test, d.classes) for d in data
    ]
    layers, shares = train(data, seeds, VARIANTS, setting[4])
    test = torch.stack([d.test[0] for d in data]).repeat(len(VARIANTS), 1, 1)
    truth = torch.stack([d.test[1] for d in data]).repeat(len(VARIANTS), 1)
    right = (forward(layers, test)[1].argmax(2) == truth).float().mean(1)
    keys = [(*setting, seed, variant) for variant in VARIANTS for seed in seeds]
    return [
        {**dict(zip(FIELDS, key, strict=True)), "accuracy": float(a), "share": float(s)}
        for key, a, s in zip(keys, right, shares, strict=True)
    ]


def check(steps: int = 60) -> None:
    """The layers after some steps, here and by the library's methods on the same batches."""
    from reweigh.methods import Problem, View, make
    from reweigh.models import MLP, MLPOptions

    setting, names, losses = SETTINGS[3], ["plain", "reweigh", "hedged"], functional.cross_entropy
    data = rows_of(setting, 1)
    layers, _ = train([data], [1], names, setting[4], steps)
    for k, method_name in enumerate(("uniform", "reweigh", "reweigh_hedged")):
        problem = Problem(
            lambda o, y: losses(o, y, reduction="none"), data.classes, data.train[1], data.clean[1],
            data.clean, steps=steps,
        )  # fmt: skip
        model = MLP(MLPOptions(inputs=64, hidden=(WIDTH, WIDTH), classes=data.classes))
        linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
        with torch.no_grad():
            for module, layer in zip(linear, first_layers(data, 1), strict=True):
                module.weight.copy_(layer[0, :, :-1])
                module.bias.copy_(layer[0, :, -1])
        method, draws = make(method_name, problem), Draws([1])
        optimizer = torch.optim.SGD(model.parameters(), lr=setting[4], momentum=0.9)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = setting[4] * (0.1 if step >= steps * 4 // 5 else 1.0)
            inputs, given = (x[0] for x in draws([data]))
            view = View(model, (inputs, given), data.clean, torch.arange(BATCH), step, 0.02)
            optimizer.zero_grad()
            method.weigh(view, method.losses).loss.backward()
            optimizer.step()
        off = max(
            float((m.weight.detach() - x[k, :, :-1]).abs().max())
            for m, x in zip(linear, layers, strict=True)
        )
        print(f"{method_name}: after {steps} steps the weights differ by at most {off:.1e}")


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Hedging",
        "",
        "Test accuracy in percent, mean over seeds, at the last step; in brackets the mean share a of the",
        "weights over the run. Made by `benchmarks/hedge.py`, which explains the columns.",
    ]
    for what, seeds in (
        ("Judging seeds, run once", (11, 12, 13)),
        ("Development seeds", (1, 2, 3)),
    ):
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
        for rival in ("plain", "reweigh"):
            gap = mean[rival] - mean["hedged"]
            if gap > 1:
                misses.append(
                    f"- {gap:.1f} points under {rival}: {name}, {noise}, {rate}, {clean}, {lr}"
                )
    return [*lines, "", "Hedged over 1 point under plain or reweigh, on average over seeds:", "",
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
