"""Does training end where it was best? Literal, safeguarded and plain training over a grid.

    python benchmarks/stability.py --jobs 2                   # run what is missing, cell by cell
    python benchmarks/stability.py --texts DIR --only texts   # a part; texts need a folder (README there)
    python benchmarks/stability.py --only digits --every 13   # of all settings, every 13th
    python benchmarks/stability.py --twins --every 7          # twins of the literal runs, of every 7th setting
    python benchmarks/stability.py --table                    # results/stability/table.md from the cells

    digits    2 noise types x learning rate .3 .1 .03 .01 x momentum 0 .9 x batch 50 200 x clean 2 5 20 per
              class on an MLP, and a sixth of that (batch 50, 5 clean per class) on a small CNN
    sampled   digits, 20 clean per class, clean batches of a tenth and a half of them: SGD .5 .1 .01 with
              momentum .9, AdamW 1e-2 3e-3 1e-3
    texts     200 clean titles, all of them or a tenth or a half at a time, the same optimizers; an MLP,
              and a transformer with AdamW
    mnist49, cifar10    the paper's settings in short

A *twin* is the literal rule again on the same data, with other first weights and another order of the batches: by how
much it misses the goals says what of a miss is chance. Of these, `--every` has a part run.

A cell's final accuracy is the mean of its last five evaluations and its best the best mean of five in a
row, so that the noise of one evaluation is not taken for a collapse. The safeguard was developed
on other seeds (1 to 4), other splits and other draws of the noise: these cells are fresh. What a cell
was run with is in its line: the safeguard's file, torch, machine. If that file has changed, safeguarded
cells are run anew; the table has only those of the latest file.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cell_store import CellStore

METHODS = ("plain", "literal", "safeguarded")
TWIN = "twin"
SEEDS = (14, 15, 16)
RESULTS = Path(__file__).parents[1] / "results" / "stability"
EVALUATIONS, WINDOW, POINTS = 20, 5, 60
FIELDS = (
    "part", "data", "model", "noise", "optimizer", "lr", "momentum", "batch", "clean", "drawn", "seed",
    "method",
)  # fmt: skip
RATES = (
    ("sgd", 0.5, 0.9), ("sgd", 0.1, 0.9), ("sgd", 0.01, 0.9), ("adamw", 1e-2, 0.0),
    ("adamw", 3e-3, 0.0), ("adamw", 1e-3, 0.0),
)  # fmt: skip
PARTS = ("texts", "sampled", "mnist49", "cifar10", "digits")


def steps(cell: dict[str, Any]) -> int:
    """Enough to settle: more where the learning rate, momentum included, is small."""
    if cell["part"] != "digits":
        return {"mnist49": 400, "cifar10": 400}.get(cell["part"], 800)
    rate = cell["lr"] / (1 - cell["momentum"])
    count = 1000 if rate > 0.2 else 1500 if rate > 0.05 else 2000
    return count // 2 if cell["model"] == "cnn" else count


def cells() -> list[dict[str, Any]]:
    """All cells, the most telling first; all of the first seed before all of the second."""
    found = [
        *_part("texts", "texts", ["mlp"], ["automatic"], RATES, [100], [200], (0.1, 0.5, 1.0)),
        *_part("texts", "texts", ["transformer"], ["automatic"], RATES[3:], [100], [200], (0.5,)),
        *_part("sampled", "digits", ["mlp"], ["uniform", "background"], RATES, [50], [20], (0.1, 0.5)),
        *_part("mnist49", "mnist49", ["lenet"], ["none"], [("sgd", 1e-3, 0.9)], [100], [5], (1.0,)),
        *_part("cifar10", "cifar10", ["resnet8"], ["background"], [("sgd", 0.1, 0.9)], [100], [10], (1.0,)),
        *_digits(),
    ]  # fmt: skip
    return sorted(found, key=lambda c: (c["part"] == "digits", c["seed"]))


def _part(part: str, *choices: Any) -> Iterator[dict[str, Any]]:
    data, networks, noises, rates, batches, clean, drawn = choices
    grid = itertools.product(networks, noises, rates, batches, clean, drawn, SEEDS, METHODS)
    for model, noise, (optimizer, lr, momentum), batch, count, share, seed, method in grid:
        values = (
            part, data, model, noise, optimizer, lr, momentum, batch, count, share, seed, method,
        )  # fmt: skip
        yield dict(zip(FIELDS, values, strict=True))


def _digits() -> Iterator[dict[str, Any]]:
    grid = itertools.product(
        ("mlp", "cnn"), ("uniform", "background"), (0.3, 0.1, 0.03, 0.01), (0.9, 0.0), (50, 200),
        (5, 2, 20), SEEDS, METHODS,
    )  # fmt: skip
    for model, noise, lr, momentum, batch, clean, seed, method in grid:
        if model == "mlp" or (batch == 50 and clean == 5):
            values = (
                "digits", "digits", model, noise, "sgd", lr, momentum, batch, clean, 1.0, seed, method,
            )  # fmt: skip
            yield dict(zip(FIELDS, values, strict=True))


def key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[field] for field in FIELDS)


def run(cell: dict[str, Any], judge: Any = None) -> dict[str, Any]:
    """judge: a safeguard in place of the default one (judges.py)."""
    import torch
    from stability_problems import problem

    import reweigh

    torch.set_num_threads(1)
    began, count = time.perf_counter(), steps(cell)
    given = problem(cell)
    model, loss, (inputs, targets) = given.model, given.loss, given.test
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[cell["optimizer"]]
    options = {"momentum": cell["momentum"]} if cell["optimizer"] == "sgd" else {}
    update = kind(model.parameters(), lr=cell["lr"], **options)
    safeguard = "auto" if cell["method"] == "safeguarded" else judge
    weigh = reweigh.Reweighter(model, loss, safeguard=safeguard)
    accuracy, factors = [], []
    for step in range(1, count + 1):
        train, clean = next(given.batches)
        update.zero_grad()
        if cell["method"] == "plain":
            loss(model, train).mean().backward()
        else:
            weighed = weigh(train, clean)
            weighed.loss.backward()
            factors.append(float(weighed.factor))
        update.step()
        if step % (count // EVALUATIONS) == 0:
            model.eval()
            with torch.no_grad():
                outputs = model(inputs)
            guess = outputs > 0 if outputs.ndim == 1 else outputs.argmax(1)
            accuracy.append(round(float((guess == targets).float().mean()), 4))
            model.train()
    means = [statistics.fmean(part) for part in windows(accuracy)]
    every = max(1, count // POINTS)
    return {
        **cell, "final": means[-1], "best": max(means), "curve": accuracy,
        "factor": statistics.fmean(factors) if factors else 1.0,
        "factors": [round(factor, 4) for factor in factors[::every]] if safeguard else [],
        "steps": count, "seconds": round(time.perf_counter() - began, 1), **provenance(),
    }  # fmt: skip


def provenance() -> dict[str, str]:
    """rule: git's name of the file with the safeguard, which any commit that holds it can be found by."""
    import torch

    rule = Path(__file__).parents[1] / "src/reweigh/core/safeguard.py"
    told = subprocess.run(["git", "hash-object", rule], check=False, capture_output=True, text=True)
    return {"torch": torch.__version__, "machine": platform.machine(), "rule": told.stdout[:10]}


def windows(values: list[float]) -> list[list[float]]:
    return [values[i : i + WINDOW] for i in range(len(values) - WINDOW + 1)]


def attempt(cell: dict[str, Any], judge: Any = None) -> dict[str, Any]:
    """A run that fails (NaN at a large learning rate) is a result: accuracy of chance."""
    from reweigh.errors import NonFiniteError

    try:
        return run(cell, judge)
    except NonFiniteError as error:
        failed = str(error).split(";")[0]
        return {**cell, "final": 0.1, "best": 0.1, "failed": failed, **provenance()}


def latest(rows: dict[tuple[Any, ...], dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Without the safeguarded runs of an earlier file. Rows are in the order in which they were run."""
    rules = [row["rule"] for row in rows.values() if row["method"] == "safeguarded"]
    return {
        name: row for name, row in rows.items()
        if row["method"] != "safeguarded" or row["rule"] == rules[-1]
    }  # fmt: skip


def thinned(wanted: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Every `every`-th setting, with all its methods."""
    settings = list(dict.fromkeys(key(cell)[:-1] for cell in wanted))[::every]
    return [cell for cell in wanted if key(cell)[:-1] in settings]


def table(every_row: dict[tuple[Any, ...], dict[str, Any]]) -> str:
    rows = latest(every_row)
    wanted = {key(cell)[:-1] for cell in cells()}
    settings = {key(row)[:-1] for row in rows.values()}
    complete = [s for s in sorted(settings) if all((*s, m) in rows for m in METHODS)]
    guarded = [row for row in rows.values() if row["method"] == "safeguarded"]
    files = ", ".join(sorted({f"`{row['rule']}`" for row in guarded}))
    lines = [
        "# Stability of the rules", "",
        f"{len(complete)} of {len(wanted)} settings x {len(METHODS)} methods of "
        f"`benchmarks/stability.py`, {platform.machine()}; the file of the safeguard, as git "
        f"names it: {files}. The same command runs what is missing. Accuracy in points (0-100); final: mean of the last five "
        "evaluations.", "",
        f"{len(every_row) - len(rows)} safeguarded runs of earlier files are kept beside these and not counted.",
        "",
    ]  # fmt: skip
    lines += [*chance(complete, rows), ""]
    for part in PARTS:
        for model in dict.fromkeys(s[2] for s in sorted(wanted, reverse=True) if s[0] == part):
            group = [s for s in complete if (s[0], s[2]) == (part, model)]
            planned = sum((s[0], s[2]) == (part, model) for s in wanted)
            lines += [f"## {part}, {model}: {len(group)} of {planned} settings", ""]
            if group:
                lines += [*summary(group, rows), "", *by_rate(group, rows), ""]
                lines += [*misses(group, rows), ""]
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


def chance(complete: list[Any], rows: Any) -> list[str]:
    """How often runs that differ by chance alone miss the goals, beside the safeguarded ones."""
    group = [s for s in complete if (*s, TWIN) in rows]
    if not group:
        return []
    lines = [
        f"## What of a miss is chance: {len(group)} settings", "",
        "*twin*: the literal rule on the same data, with other first weights and another order of the batches.", "",
        "| method | mean final | over 3 points under own best | over 1 point under plain | over 1 point under stable literal |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    stable = [
        s for s in group if rows[(*s, "literal")]["best"] - rows[(*s, "literal")]["final"] <= 0.03
    ]
    for name, part in (("all", group), ("where the literal rule is stable", stable)):
        for method in ("literal", TWIN, "safeguarded"):
            by_rival = gaps(part, rows, method)
            counts = [
                f"{sum(gap > limit + 1e-9 for gap, _ in by_rival[rival])} of {len(by_rival[rival])}"
                for rival, limit in LIMITS
            ]
            mean = 100 * statistics.fmean(rows[(*s, method)]["final"] for s in part)
            lines.append(f"| {method}, {name} | {mean:.1f} | {' | '.join(counts)} |")
    return lines


LIMITS = (("own", 3.0), ("plain", 1.0), ("literal", 1.0))


def summary(part: list[Any], rows: Any) -> list[str]:
    lines = [
        "| method | mean final | lowest final | over 3 points under own best (worst) "
        "| over 1 point under plain (worst) | over 1 point under stable literal (worst) |",
        "|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        finals = [100 * rows[(*s, method)]["final"] for s in part]
        by_rival = gaps(part, rows, method)

        def count(name: str, limit: float, by_rival: Any = by_rival) -> str:
            values = [gap for gap, _ in by_rival[name]]
            over = sum(v > limit + 1e-9 for v in values)
            return f"{over} of {len(values)} ({max(values, default=0):.1f})"

        counts = " | ".join(count(name, limit) for name, limit in LIMITS)
        lines.append(
            f"| {method} | {statistics.fmean(finals):.1f} | {min(finals):.1f} | {counts} |"
        )
    return lines


def by_rate(part: list[Any], rows: Any) -> list[str]:
    lines = [
        "| optimizer | lr | momentum | clean batch | plain | literal | safeguarded | factor | seeds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in sorted({(*s[4:7], s[9]) for s in part}, reverse=True):
        group = [s for s in part if (*s[4:7], s[9]) == setting]
        means = [100 * statistics.fmean(rows[(*s, m)]["final"] for s in group) for m in METHODS]
        factor = statistics.fmean(rows[(*s, "safeguarded")].get("factor", 1.0) for s in group)
        optimizer, lr, momentum, drawn = setting
        values = " | ".join(f"{mean:.1f}" for mean in means)
        share = "all" if drawn == 1 else f"{drawn:g} of all"
        seeds = len({s[10] for s in group})
        lines.append(
            f"| {optimizer} | {lr} | {momentum} | {share} | {values} | {factor:.2f} | {seeds} |"
        )
    return lines


def misses(part: list[Any], rows: Any) -> list[str]:
    by_rival = gaps(part, rows, "safeguarded")
    lines = ["Safeguarded runs that miss a goal:", ""]
    for name, limit in LIMITS:
        for gap, s in sorted(by_rival[name], reverse=True):
            if gap > limit + 1e-9:
                lines.append(f"- {gap:.1f} points under {name}: " + ", ".join(map(str, s[3:])))
    return lines if len(lines) > 2 else ["No safeguarded run misses a goal."]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument(
        "--texts", type=Path, help="folder of the texts; without it they are left out"
    )
    parser.add_argument("--models", nargs="+", help="only these networks")
    parser.add_argument("--every", type=int, default=1, help="run only every so many settings")
    parser.add_argument("--twins", action="store_true", help="run twins of the literal runs")
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    store = CellStore(arguments.out / "cells.jsonl", FIELDS)
    if not arguments.table:
        if arguments.texts:
            os.environ["REWEIGH_TEXTS"] = str(arguments.texts)
        parts = [p for p in arguments.only if p != "texts" or "REWEIGH_TEXTS" in os.environ]
        wanted = [
            c for c in cells()
            if c["part"] in parts and c["seed"] in arguments.seeds
            and c["model"] in (arguments.models or [c["model"]])
        ]  # fmt: skip
        rule = provenance()["rule"]
        chosen = thinned(wanted, arguments.every)
        if arguments.twins:
            chosen = [{**c, "method": TWIN} for c in chosen if c["method"] == "literal"]
        store.run_missing(
            chosen, attempt, jobs=arguments.jobs,
            outdated=lambda row: row["method"] == "safeguarded" and row["rule"] != rule,
        )  # fmt: skip
    text = table(store.rows())
    (arguments.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
