"""The runs behind docs/evidence.md, one after the other, the most telling first.

    python benchmarks/evidence.py --list       # the commands, and which of them are finished
    python benchmarks/evidence.py              # runs what is missing; stop it whenever you like
    python benchmarks/evidence.py --jobs 2     # two commands at a time, never two on the same folder
    python benchmarks/evidence.py --minutes 60 # begins no new command after that

Every command is `reweigh reproduce`, one cell at a time with one thread, into results/ID-medium. A cell that
was stopped goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reweigh.experiments import EXPERIMENTS, Cell, cells
from reweigh.results import LINES, cell_key, read_lines

RESULTS = Path(__file__).parents[1] / "results"
SCALE = "medium"


@dataclass(frozen=True)
class Run:
    """A part of an experiment's grid."""

    experiment: str
    methods: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    seeds: int | None = None
    reuse: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return RESULTS / f"{self.experiment}-{SCALE}"

    @property
    def command(self) -> list[str]:
        """What comes after `python -m`."""
        parts = ["reweigh", "reproduce", self.experiment, "--scale", SCALE]
        parts += ["--jobs", "1", "--threads", "1", "--out", str(self.folder)]
        parts += ["--methods", ",".join(self.methods)] if self.methods else []
        parts += ["--seeds", str(self.seeds)] if self.seeds else []
        for setting in self.only:
            parts += ["--only", setting]
        for name in self.reuse:
            if (folder := RESULTS / f"{name}-{SCALE}" / LINES).exists():
                parts += ["--reuse", str(folder.parent)]
        return parts

    @property
    def missing(self) -> list[Cell]:
        pairs = dict(text.split("=") for text in self.only)
        grid = cells(
            EXPERIMENTS[self.experiment],
            SCALE,
            seeds=self.seeds,
            methods=self.methods,
            only=pairs,
        )
        finished = {cell_key(line) for line in read_lines(self.folder / LINES)}
        return [cell for cell in grid if cell.key not in finished]


OURS, GUARDED = "reweigh_literal", "reweigh"
FLIPS = ("cifar10-background", "cifar10-uniform")
HUMAN = ("labels=worst", "clean=100")


def queue() -> Iterator[Run]:
    for method in ("uniform", OURS, "uniform+ft", "clean_only", "random"):
        for table in FLIPS:
            yield Run(table, (method,), seeds=1)
    for method in ("uniform", OURS, "uniform+ft", GUARDED, "random", "clean_only"):
        yield Run("human-noise", (method,), HUMAN, seeds=1)
    yield Run("weight-distribution", seeds=1)
    for table in FLIPS:
        yield Run(table, (GUARDED,), seeds=1)
    yield Run("confusion", reuse=FLIPS)
    yield Run("curves")
    for method in ("reweigh_hedged", "reweigh_bootstrap", "co_teaching", "meta_weight_net"):
        yield Run("human-noise", (method,), HUMAN, seeds=1)
    for table in FLIPS:
        yield Run(table, seeds=1)
    for table in FLIPS:
        yield Run(table)
    yield Run("mnist-imbalance", (OURS, "uniform", "proportion", "resample"), ("share=0.995",), 1)
    yield Run("noise-level", ("uniform", OURS), reuse=FLIPS)
    yield Run("clean-size", ("uniform+ft", OURS))
    yield Run("human-noise", seeds=1)
    for name in EXPERIMENTS:
        yield Run(name, reuse=tuple(t for t in FLIPS if t != name))


def work_off(runs: list[Run], *, jobs: int, minutes: float) -> None:
    """Run what is missing, `jobs` commands at a time, each folder by one command at a time."""
    begun, going = time.monotonic(), dict[Path, subprocess.Popen[bytes]]()
    while runs or going:
        going = {folder: process for folder, process in going.items() if process.poll() is None}
        if time.monotonic() - begun > 60 * minutes:
            runs = []
        ready = (run for run in runs if run.folder not in going)
        if len(going) < jobs and (run := next(ready, None)) is not None:
            runs.remove(run)
            if run.missing:
                going[run.folder] = subprocess.Popen([sys.executable, "-m", *run.command])
        elif going:
            time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    arguments = parser.parse_args()
    if not arguments.list:
        return work_off(list(queue()), jobs=max(1, arguments.jobs), minutes=arguments.minutes)
    for run in queue():
        shown = [part.replace(f"{RESULTS.parent}/", "") for part in run.command]
        print(f"{len(run.missing):3} missing: {' '.join(shown)}")
    return None


if __name__ == "__main__":
    main()
