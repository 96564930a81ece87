"""A whole run, reweighed and plain: python benchmarks/end_to_end.py [--steps N] [--seeds S] [--jobs J]

MNIST 4 against 9 with 99.5% nines, the paper's LeNet and settings (batches of 100, 10 clean images):
everything a run does, from loading the data to its folder with checkpoints, the ledger and the last
evaluation. Plain and reweighed runs share a pool of processes of one thread each. What is no step
(data, evaluation, ledger, logging, checkpoints) is timed by itself.

Writes results/performance/end_to_end.jsonl run by run (the same command goes on), and end_to_end.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cell_store import CellStore, Row

from reweigh.experiments import EXPERIMENTS, Cell, machine, run_cell
from reweigh.files import write_whole

RESULTS = Path(__file__).parents[1] / "results/performance"
METHODS = ("uniform", "reweigh", "reweigh_literal")
SHARE = 0.995
FULL = EXPERIMENTS["mnist-imbalance"].blocks["paper"][0].setup


class Clock:
    """The time spent in a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __get__(self, owner: Any, kind: Any = None) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return self.function(owner, *args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def run(cell: Row) -> Row:
    """One run, from nothing."""
    from reweigh.audit import Ledger
    from reweigh.training.trainer import Trainer

    step, ledger = Clock(Trainer.step), Clock(Ledger.record)
    Trainer.step, Ledger.record = step, ledger  # type: ignore[assignment,method-assign]
    try:
        setup = FULL.at({"share": SHARE})
        setup = replace(setup, config=replace(setup.config, steps=cell["steps"]))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as work:
            done = run_cell(
                Cell("mnist-imbalance", cell["method"], (("share", SHARE),), cell["seed"], setup),
                work=Path(work),
                threads=1,
                tick=lambda steps: None,
            )
        seconds = time.perf_counter() - began
    finally:
        Trainer.step, Ledger.record = step.function, ledger.function  # type: ignore[method-assign]
    return {
        **cell,
        "seconds": round(seconds, 2),
        "in_steps": round(step.seconds - ledger.seconds, 2),
        "ledger": round(ledger.seconds, 2),
        "test_accuracy": done["metrics"]["test_accuracy"],
        "machine": machine(),
    }


def table(rows: list[Row], batch: int) -> str:
    """One line per method."""
    plain = statistics.fmean(r["seconds"] for r in rows if r["method"] == METHODS[0])
    lines = [
        "| training | runs | seconds | ratio to plain | examples a second | outside of steps "
        "| of it, the ledger | test error, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        own = [r for r in rows if r["method"] == method]
        if not own:
            continue
        seconds = statistics.fmean(r["seconds"] for r in own)
        outside = statistics.fmean(1 - r["in_steps"] / r["seconds"] for r in own)
        ledger = statistics.fmean(r["ledger"] / r["seconds"] for r in own)
        errors = ", ".join(f"{100 * (1 - r['test_accuracy']):.1f}" for r in own)
        lines.append(
            f"| {method} | {len(own)} | {seconds:.0f} | {seconds / plain:.2f} "
            f"| {own[0]['steps'] * batch / seconds:,.0f} | {outside:.1%} | {ledger:.2%} | {errors} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--steps", type=int, default=FULL.config.steps)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--out", type=Path, default=RESULTS)
    asked = options.parse_args()
    store = CellStore(asked.out / "end_to_end.jsonl", ("method", "seed", "steps"))
    cells = [
        {"method": method, "seed": seed, "steps": asked.steps}
        for seed in range(asked.seeds)
        for method in METHODS
    ]
    store.run_missing(cells, run, jobs=asked.jobs)
    rows = [row for row in store.rows().values() if row["steps"] == asked.steps]
    if not any(row["method"] == METHODS[0] for row in rows):
        raise SystemExit("no plain run has finished: nothing to compare with")
    text = table(rows, FULL.config.batch.size)
    write_whole(asked.out / "end_to_end.md", text)
    print(text)


if __name__ == "__main__":
    main()
