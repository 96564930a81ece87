"""`reweigh demo`: the demonstration (catalog/demo.py) run by the common runner, and its results.json.

A run is judged twice: by its accuracy on the true test labels, and by how it ranks the train labels,
of which it knows only the given ones. The suspicion of a label, over the steps its example was in:

    uniform   suspicion = its mean loss
    reweigh   suspicion = 1 - share of steps in which it had a positive weight

Finished runs are kept in a hidden folder beside the results, so that an interrupted demonstration
goes on where it stopped.
"""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import ReweighError
from ..files import writable_folder, write_whole
from ..optional import optional
from ..results import FAILURES, Json, cell_key, read_lines, read_results
from .catalog.demo import CLEAN_ONLY, SCALE, DemoSettings, demonstration, perceptron
from .cell_training import TrainedCell, train_cell
from .demo_results import assemble, versions_used
from .experiment import Cell, cells, described
from .grid import Watcher, run_grid
from .training_setup import digest
from .workers import Tick

RESULTS = "results.json"
UNFINISHED = ".unfinished"
SUSPICION = {"uniform": "mean_loss", "reweigh": "zero_share"}  # columns of the ledger
BINS = 20  # of the histogram of how often an example was used
SUSPECTS = 30  # shown in the report


def run_demo(
    out: Path,
    *,
    seeds: int = 3,
    settings: DemoSettings | None = None,
    jobs: int = 1,
    command: str = "",
    watcher: Watcher | None = None,
) -> Json:
    """Run every cell, write `results.json` into the folder `out`, and return what it holds."""
    begun = time.monotonic()
    settings, watcher = settings or DemoSettings(), watcher or Watcher()
    experiment = demonstration(settings)
    grid = cells(experiment, SCALE, seeds=seeds)
    about = described(experiment, SCALE, as_published=False)
    unfinished = writable_folder(out) / UNFINISHED
    # Runs of other settings or versions lie in other folders, and are not taken over.
    folder = unfinished / digest([about["setups"], versions_used()])
    failed = run_grid(
        grid, about, out=folder, jobs=jobs, threads=1, watcher=watcher, run=run_demo_cell
    )
    if failed:
        path = folder / FAILURES
        raise ReweighError(
            f"{len(failed)} of {len(grid)} runs failed, the first with: "
            f"{read_lines(path)[0]['error']}; why is in {path}. The same command tries them again"
        )
    results = assemble(_runs(folder, grid), settings, seeds, command)
    results["seconds"] = round(time.monotonic() - begun, 1)
    write_whole(out / RESULTS, json.dumps(results, indent=1) + "\n")
    shutil.rmtree(unfinished)
    return results


def run_demo_cell(cell: Cell, *, work: Path, threads: int | None, tick: Tick) -> Json:
    """Train one cell and judge it: accuracy on clean test labels, ranking of the wrong train labels."""
    begun = time.monotonic()
    trained = train_cell(cell, work=work, threads=threads, tick=tick, make_model=perceptron)
    curve = [[point["step"], point["test_accuracy"]] for point in trained.outcome.curve]
    # At the end of training: no early stopping, no choice of a best step.
    metrics: Json = {"test_accuracy": curve[-1][1]}
    details: Json = {"curve": curve, "sizes": trained.sizes}
    if cell.method != CLEAN_ONLY:
        suspicion = label_suspicion(trained, cell.method)
        metrics |= _ranking_metrics(trained.task.train.changed, suspicion)
        metrics["best_test_accuracy"] = max(value for _, value in curve)
        if cell.method == "reweigh":
            details |= _ranking_details(trained, suspicion)
    return {"metrics": metrics, "seconds": round(time.monotonic() - begun, 2), "details": details}


def label_suspicion(trained: TrainedCell, method: str) -> Tensor:
    """How suspicious each train label is after a run, [n]."""
    suspicion = torch.from_numpy(trained.outcome.ledger.table()[SUSPICION[method]])
    # An example never seen (only in very short runs) is no more suspicious than the average.
    return suspicion.nan_to_num(nan=float(suspicion.nanmean()))


def _ranking_metrics(wrong: Tensor, suspicion: Tensor) -> Json:
    """AUROC, and of as many top suspects as there are wrong labels, the share that is wrong."""
    metrics = optional("sklearn.metrics", package="scikit-learn", needed_for="the demo")
    count = int(wrong.sum())
    return {
        "noise_auroc": float(metrics.roc_auc_score(wrong.numpy(), suspicion.numpy())),
        "noise_precision": int(wrong[_ranking(suspicion)[:count]].sum()) / count,
    }


def _ranking(suspicion: Tensor) -> Tensor:
    return suspicion.argsort(descending=True, stable=True)


def _ranking_details(trained: TrainedCell, suspicion: Tensor) -> Json:
    """used: right and wrong labels by the share of their steps with a positive weight, in bins of
    0 ... 1. suspects: the most suspicious images, pixels 8x8 of 0 ... 16.
    """
    train = trained.task.train
    used, wrong = (1 - suspicion).numpy(), train.changed.numpy()
    return {
        "used": {
            name: np.histogram(used[which], bins=BINS, range=(0, 1))[0].tolist()
            for name, which in (("right", ~wrong), ("wrong", wrong))
        },
        "suspects": [
            {
                "pixels": train.inputs[train.ids[i]].flatten().tolist(),
                "given": int(train.targets[i]),
                "true": int(train.truth[i]),
                "suspicion": round(float(suspicion[i]), 4),
            }
            for i in _ranking(suspicion)[:SUSPECTS].tolist()
        ],
    }


def _runs(folder: Path, grid: list[Cell]) -> list[Json]:
    """Of each cell its row of results.json and its details, in the grid's order."""
    results = read_results(folder)
    lines = {cell_key(line): line for line in results.lines}
    runs = []
    for cell in grid:
        line = lines[cell.key]
        which = {**dict(cell.setting), "method": cell.method, "seed": cell.seed}
        row = {**which, **line["metrics"], "seconds": line["seconds"]}
        runs.append({"row": row, **results.details(line)})
    return runs
