"""The demonstration: noisy digits, plain training against reweighed, over seeds.

2 kinds of noise x 2 methods x seeds, each cell one run of `contest.train`; and for scale, one plain
run per seed on the clean images alone, which is what the trusted labels are worth by themselves. What is finished is kept
in a file beside the results, so that an interrupted demonstration goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from ..errors import SettingError
from ..files import writable_folder, write_whole
from ..optional import optional
from .contest import METHODS, Outcome, Settings, train
from .demo_summary import Json, assemble, clean_only_summary, versions
from .digits import NOISES, Digits, load_digits
from .workers import Tick, run_tasks

RESULTS = "results.json"
UNFINISHED = ".unfinished.jsonl"
BINS = 20  # of the histogram of how often an example was used
SUSPECTS = 30  # shown in the report

CLEAN_ONLY = "clean_only"


@dataclass(frozen=True)
class Cell:
    """One run: which noise, which method, which seed."""

    noise: str
    method: str
    seed: int
    settings: Settings


def run_demo(
    out: Path,
    *,
    seeds: int = 3,
    settings: Settings | None = None,
    jobs: int = 1,
    command: str = "",
    start: Callable[[int, int], Tick] = lambda total, done: lambda steps: None,
) -> Json:
    """Run every cell, write `results.json` into the folder `out`, and return what it holds.

    `start(total, done)` is told how many steps there are in all and how many an earlier, interrupted
    call has done; the function it returns is called with the number of further steps done.
    """
    settings = settings or Settings()
    if seeds < 1:
        raise SettingError(f"seeds is {seeds}; expected 1 or more")
    if jobs < 1:
        raise SettingError(f"jobs is {jobs}; expected 1 or more")
    begun = time.monotonic()
    unfinished = writable_folder(out) / UNFINISHED
    cells = [Cell(n, m, s, settings) for s in range(seeds) for n in NOISES for m in METHODS]
    cells += [Cell("none", CLEAN_ONLY, s, settings) for s in range(seeds)]
    kept = _read_finished(unfinished, cells)
    tick = start(len(cells) * settings.steps, len(kept) * settings.steps)
    # The slow method first: the last run to finish is then a short one.
    missing = sorted((c for c in cells if c not in kept), key=lambda c: c.method != "reweigh")
    with unfinished.open("a", encoding="utf-8") as log:
        for cell, run in run_tasks(run_cell, missing, jobs=jobs, tick=tick):
            kept[cell] = run
            log.write(json.dumps({"cell": asdict(cell), "versions": versions(), "run": run}))
            log.write("\n")
            log.flush()
    runs = [kept[cell] for cell in cells if cell.method != CLEAN_ONLY]
    results = assemble(runs, settings, seeds, command)
    results[CLEAN_ONLY] = clean_only_summary(
        [kept[c]["row"] for c in cells if c.method == CLEAN_ONLY]
    )
    results["seconds"] = round(time.monotonic() - begun, 1)
    write_whole(out / RESULTS, json.dumps(results, indent=1) + "\n")
    unfinished.unlink()
    return results


def run_cell(cell: Cell, tick: Tick) -> tuple[Cell, Json]:
    """Train one cell and judge it: accuracy on clean test labels, ranking of the wrong train labels."""
    settings = cell.settings
    alone = cell.method == CLEAN_ONLY
    digits = load_digits(
        noise=NOISES[0] if alone else cell.noise,
        rate=settings.noise,
        clean_per_class=settings.clean_per_class,
        seed=cell.seed,
    )
    if alone:
        clean = digits.clean_only()
        outcome = train(clean, method="uniform", seed=cell.seed, settings=settings, tick=tick)
        return cell, {"row": {"seed": cell.seed, "test_accuracy": outcome.test_accuracy}}
    begun = time.monotonic()
    outcome = train(digits, method=cell.method, seed=cell.seed, settings=settings, tick=tick)
    row = {
        "noise": cell.noise,
        "method": cell.method,
        "seed": cell.seed,
        "test_accuracy": outcome.test_accuracy,
        "noise_auroc": _auroc(digits, outcome),
        "noise_precision": _precision(digits, outcome),
        "best_test_accuracy": max(value for _, value in outcome.curve),
        "seconds": round(time.monotonic() - begun, 2),
    }
    run: Json = {
        "row": row,
        "curve": [list(point) for point in outcome.curve],
        "sizes": {
            "train": len(digits.train_labels),
            "wrong": int(digits.wrong.sum()),
            "clean": len(digits.clean_labels),
            "test": len(digits.test_labels),
        },
    }
    if cell.method == "reweigh":
        run["used"] = _histogram(digits, outcome)
        run["suspects"] = _suspects(digits, outcome)
    return cell, run


def _auroc(digits: Digits, outcome: Outcome) -> float:
    metrics = optional("sklearn.metrics", package="scikit-learn", needed_for="the demo")
    return float(metrics.roc_auc_score(digits.wrong.numpy(), outcome.suspicion.numpy()))


def _precision(digits: Digits, outcome: Outcome) -> float:
    """Of as many top suspects as there are wrong labels, the share that is wrong."""
    wrong = digits.wrong
    count = int(wrong.sum())
    return int(wrong[_ranking(outcome)[:count]].sum()) / count


def _ranking(outcome: Outcome) -> torch.Tensor:
    return outcome.suspicion.argsort(descending=True, stable=True)


def _histogram(digits: Digits, outcome: Outcome) -> dict[str, list[int]]:
    """How many right and wrong labels were used in which share of their steps, in bins of 0 ... 1."""
    used, wrong = (1 - outcome.suspicion).numpy(), digits.wrong.numpy()
    return {
        name: np.histogram(used[which], bins=BINS, range=(0, 1))[0].tolist()
        for name, which in (("right", ~wrong), ("wrong", wrong))
    }


def _suspects(digits: Digits, outcome: Outcome) -> list[Json]:
    return [
        {
            "pixels": digits.train_pixels[i].tolist(),  # 8x8, 0 ... 16
            "given": int(digits.train_labels[i]),
            "true": int(digits.true_labels[i]),
            "suspicion": round(float(outcome.suspicion[i]), 4),
        }
        for i in _ranking(outcome)[:SUSPECTS].tolist()
    ]


def _read_finished(path: Path, cells: Iterable[Cell]) -> dict[Cell, Json]:
    """The runs an interrupted demonstration left, if they are of these settings and versions."""
    wanted = {json.dumps(asdict(cell), sort_keys=True): cell for cell in cells}
    kept: dict[Cell, Json] = {}
    if not path.exists():
        return kept
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:  # the line being written when the power went
            continue
        cell = wanted.get(json.dumps(entry["cell"], sort_keys=True))
        if cell is not None and entry["versions"] == versions():
            kept[cell] = entry["run"]
    return kept
