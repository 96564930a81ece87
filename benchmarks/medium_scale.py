"""What the scale `medium` was chosen by, measured without a single test image.

    python benchmarks/medium_scale.py             # runs the cells that are missing, then writes the table
    python benchmarks/medium_scale.py --table     # only the table

Three conditions, all about plain training, fixed before any other method was run:

    1. on the right labels it reaches 75% on images it has not seen
    2. on 40% wrong labels it has the time to memorise them: 95% of the labels as given
    3. a run takes ten minutes of one core at most

Images not seen: 5,000 of CIFAR-10's *train* images that the task leaves out. A cell is a kind of labels and a digest
of all settings; it is appended to results/medium-scale/cells.jsonl when it is done, and cells of settings that
were tried and given up stay there. One that was stopped goes on from its checkpoint; its time is that of the last
call, scaled to all steps.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from cell_store import CellStore, command

from reweigh import data
from reweigh.experiments import EXPERIMENTS, Setup, cells, commit, versions
from reweigh.experiments.training_setup import digest
from reweigh.models import build
from reweigh.training import fit

RESULTS = Path(__file__).parents[1] / "results" / "medium-scale"
FIELDS = ("labels", "seed", "setup")
KINDS = {
    "uniform": ("cifar10-uniform", 0.4, "40% flipped to any other class"),
    "right": ("cifar10-background", 0.0, "right"),
    "background": ("cifar10-background", 0.4, "40% flipped to one class"),
}
HELD_OUT = 5000


def held_out(dataset: data.Dataset, task: data.Task) -> data.Part:
    """Train images that no part of the task has, in the order of the data."""
    used = torch.cat([part.ids for part in (task.train, task.clean, task.hyper_validation)])
    free = torch.ones(len(dataset.train), dtype=torch.bool)
    free[used] = False
    ids = torch.nonzero(free).flatten()
    some = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))[:HELD_OUT]]
    return data.whole(dataset.train).take(some.sort().values)


def setup_of(kind: str) -> Setup:
    experiment, rate, _ = KINDS[kind]
    (planned,) = cells(EXPERIMENTS[experiment], "medium", methods=["uniform"], seeds=1)
    return replace(planned.setup, recipe=replace(planned.setup.recipe, rate=rate))


def run_cell(cell: dict) -> dict:
    torch.set_num_threads(1)
    setup = setup_of(cell["labels"])
    dataset = data.load(setup.recipe.dataset)
    task = data.prepare(dataset, setup.recipe, seed=cell["seed"])
    task = replace(task, test=held_out(dataset, task))
    scaling = data.Scaling.of(task.train.examples(), task.peak)
    batch = replace(setup.config.batch, scaling=scaling, peak=task.peak)
    config = replace(
        setup.config, method="uniform", batch=batch, seed=cell["seed"], threads=1, device="cpu"
    )
    work = RESULTS / ".work" / "-".join(str(cell[name]) for name in FIELDS)
    steps_seen: list[int] = []

    def make() -> torch.nn.Module:
        return build(setup.model).to(memory_format=torch.channels_last)

    begun = time.process_time()
    outcome = fit(make, task, config, out=work, progress=lambda now: steps_seen.append(now.step))
    seconds = (time.process_time() - begun) * config.steps / max(1, len(steps_seen))
    return {
        **cell,
        "held_out_accuracy": outcome.metrics["test_accuracy"],
        "as_given": outcome.metrics["train_accuracy"],
        "as_true": outcome.metrics["train_true_accuracy"],
        "cpu_seconds": round(seconds, 1),
        "train": len(task.train),
        "settings": setup.described(),
        "versions": versions(),
        "commit": commit(),
    }


def within(old: object, new: object) -> bool:
    """Whether settings are the same but for fields that a later version has added."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and within(value, new[name]) for name, value in old.items())
    return json.dumps(old) == json.dumps(new)


def table(finished: dict[tuple, dict]) -> str:
    lines = [
        "# Plain training at `medium`",
        "",
        "| labels | accuracy on 5,000 unseen train images | labels as given learnt | minutes of one core |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        now = setup_of(kind).described()
        for row in finished.values():
            if row["labels"] != kind or not within(row["settings"], now):
                continue
            lines.append(
                f"| {KINDS[row['labels']][2]} | {row['held_out_accuracy']:.1%} "
                f"| {row['as_given']:.1%} | {row['cpu_seconds'] / 60:.1f} |"
            )
    return "\n".join(lines) + "\n"


CELLS = [{"labels": kind, "seed": 0, "setup": digest(setup_of(kind).described())} for kind in KINDS]

if __name__ == "__main__":
    command(__doc__, CellStore(RESULTS / "cells.jsonl", FIELDS), CELLS, run_cell, table)
