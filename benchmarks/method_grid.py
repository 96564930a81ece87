"""Which variant of reweighing is the default? Variants and rivals over data, noise and clean sizes.

    python benchmarks/method_grid.py --texts DIR              # run what is missing, setting by setting
    python benchmarks/method_grid.py --data digits texts      # a part; texts need a folder
    python benchmarks/method_grid.py --check                  # the same numbers as the library's methods?
    python benchmarks/method_grid.py --table                  # results/methods/grid.md from the cells

All methods and seeds of a setting train together, with the schedule of `reweigh train`: stacked_runs.py. Data:
stacked_tasks.py. The last step counts; beside it an average of the weights over about the last tenth of the run
(`Config(average=.1)`), which changes nothing else. Seeds 11 to 13: nothing was chosen on them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from cell_store import CellStore
from method_grid_table import FIELDS, table
from stacked_check import check
from stacked_runs import accuracies, train
from stacked_tasks import Setting, of_seeds

RESULTS = Path(__file__).parents[1] / "results" / "methods"
SEEDS, LEARNING_RATE = (11, 12, 13), 0.02
METHODS = (
    "uniform", "uniform+clean", "uniform+ft", "clean_only", "reweigh_literal", "reweigh", "reweigh+clean",
    "reweigh+ft", "reweigh_bootstrap", "reweigh_bootstrap+clean", "reweigh_hedged",
)  # fmt: skip
UNIFORM, BACKGROUND, PAIR, PEOPLE = "uniform_flip", "background_flip", "pair_flip", "human_worst"
RATES, SIZES = (0.4, 0.8, 0.2, 0.6), (5, 20, 2, 50)
PARTS = ("digits", "texts", "made", "biopsies", "cifar", "mnist")


def settings() -> list[Setting]:
    """All of them, the most telling first."""
    return sorted(
        _grid(), key=lambda s: (SIZES.index(s[3]) // 2, RATES.index(s[2]) if s[2] in RATES else 0)
    )


def _grid() -> Iterator[Setting]:
    for size in SIZES:
        yield "texts", "human_automatic", 0.33, size
        yield "cifar", PEOPLE, 0.4, size
        for rate in RATES:
            for data in ("digits", "made", "biopsies", "cifar", "mnist"):
                if data in ("cifar", "mnist") and size in (2, 50):
                    continue
                # More than that would be another labelling, or none at all, and not noise.
                if rate <= {"made": 0.6, "biopsies": 0.4}.get(data, 0.8):
                    yield data, UNIFORM, rate, size
                yield data, BACKGROUND, rate, size
            if rate < 0.5:
                yield "digits", PAIR, rate, size


def run(setting: Setting, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The cells of one setting."""
    torch.set_num_threads(1)
    began, data = time.process_time(), of_seeds(setting, seeds)
    ends = train(data, seeds, METHODS, LEARNING_RATE)
    last, averaged = (accuracies(layers, data).tolist() for layers in (ends.layers, ends.average))
    keys = [(*setting, seed, method) for method in METHODS for seed in seeds]
    seconds = round((time.process_time() - began) / len(keys), 1)
    return [
        {**dict(zip(FIELDS, key, strict=True)), "test_accuracy": a, "averaged_accuracy": b,
         "seconds": seconds, "torch": torch.__version__}
        for key, a, b in zip(keys, last, averaged, strict=True)
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--data", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument(
        "--texts", type=Path, help="folder of the texts; without it they are left out"
    )
    parser.add_argument("--check", action="store_true", help="only compare with the library")
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.check:
        check()
        return
    store = CellStore(options.out / "grid.jsonl", FIELDS)
    if options.texts:
        os.environ["REWEIGH_TEXTS"] = str(options.texts)
    parts = [p for p in options.data if p != "texts" or "REWEIGH_TEXTS" in os.environ]
    wanted = [s for s in settings() if s[0] in parts]
    for number, setting in enumerate(() if options.table else wanted, start=1):
        if all((*setting, seed, m) in store.rows() for seed in options.seeds for m in METHODS):
            continue
        began = time.process_time()
        store.append(run(setting, options.seeds))
        spent = time.process_time() - began
        print(f"{number} of {len(wanted)}:", *setting, f"{spent:.0f} s", flush=True)
    (options.out / "grid.md").write_text(table(list(store.rows().values())))
    print(f"wrote {options.out / 'grid.md'}")


if __name__ == "__main__":
    main()
