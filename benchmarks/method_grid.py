"""Which variant of reweighing is the default? Variants and rivals over data, noise and clean sizes.

    python benchmarks/method_grid.py --seeds 1 2 3                 # development: for choosing
    python benchmarks/method_grid.py --seeds 11 12 13              # judging: run once, after the choice
    python benchmarks/method_grid.py --texts DIR --data texts      # a part; texts: see stability_problems.py
    python benchmarks/method_grid.py --table                       # results/methods/grid.md from the cells

Training is as `reweigh train` has it: batch 100, all clean rows in every step, SGD .02 with momentum .9,
cut to a tenth at four fifths, norm of the gradient at most 10. The last step counts. Every run also
keeps an average of its weights (`Config(average=.1)`), which changes nothing else, and is judged with both.

    digits           scikit-learn's 8x8 digits; MLP 64-64-64-10; 600 steps
    biopsies, made   a table of scikit-learn (2 classes), and one of its generator (5 classes); MLP, 600 steps
    texts            Yoruba titles; labels from keyword lists, 33% wrong; MLP on TF-IDF, 600 steps
    mnist            1,600 images of MNIST; LeNet, 600 steps
    cifar10n         4,000 images of CIFAR-10, 40% wrong labels by people or background flips; image-cnn of
                     three layers, 1,000 steps
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cell_store import CellStore
from method_grid_table import FIELDS, table

RESULTS = Path(__file__).parents[1] / "results" / "methods"
DEVELOPMENT, JUDGING = (1, 2, 3), (11, 12, 13)
VARIANTS = (
    "uniform", "reweigh", "reweigh_hedged", "reweigh+clean", "reweigh_bootstrap",
    "reweigh_bootstrap+clean", "reweigh+ft", "clean_only",
)  # fmt: skip
RIVALS = ("uniform+clean", "gce", "mentornet_predefined", "glc", "meta_weight_net", "co_teaching")
STEPS = {
    "digits": 600, "biopsies": 600, "made": 600, "texts": 600, "mnist": 600, "cifar10n": 1000,
}  # fmt: skip
NETWORKS = {"digits": 64, "biopsies": 64, "made": 128, "texts": 64}
PARTS = tuple(STEPS)


def cells(seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """All cells, the most telling first, all of one seed before the next: a cut leaves whole settings."""
    found = [
        (rank, seeds.index(seed), (*setting, seed, method))
        for seed in seeds
        for rank, settings in enumerate((FIRST, SECOND, THIRD))
        for setting in settings
        for method in (VARIANTS if rank < 2 else (*VARIANTS, *RIVALS))
    ]
    found += [
        (2, seeds.index(seed), (*setting, seed, method))
        for seed in seeds
        for setting in (*FIRST, *SECOND)
        for method in RIVALS
    ]
    found.sort(key=lambda cell: cell[:2])
    return [dict(zip(FIELDS, cell[2], strict=True)) for cell in found]


UNIFORM, BACKGROUND, PAIR = "uniform_flip", "background_flip", "pair_flip"
KINDS = (UNIFORM, BACKGROUND)
# (data, noise, rate, clean rows of each class)
FIRST = [
    *(("digits", kind, rate, 5) for rate in (0.4, 0.8) for kind in KINDS),
    *(("texts", "human_automatic", 0.33, clean) for clean in (14, 28)),
    *(("made", kind, 0.4, 20) for kind in KINDS),
    *(("biopsies", kind, 0.2, 20) for kind in KINDS),
    *(("digits", kind, 0.4, clean) for clean in (2, 20) for kind in KINDS),
    ("digits", PAIR, 0.4, 5),  # more than half would be another labelling, not noise
]
SECOND = [
    ("cifar10n", "human_worst", 0.4, 10),
    ("cifar10n", BACKGROUND, 0.4, 10),
    ("mnist", UNIFORM, 0.4, 10),
    ("mnist", BACKGROUND, 0.4, 10),
]
THIRD = [
    *(("digits", kind, rate, 5) for rate in (0.2, 0.6) for kind in KINDS),
    *(("digits", k, r, c) for c in (2, 20) for r in (0.8, 0.2, 0.6) for k in KINDS),
    ("digits", PAIR, 0.2, 5),
    ("texts", "human_automatic", 0.33, 7),
    *(("made", kind, rate, clean) for rate, clean in ((0.2, 20), (0.4, 5)) for kind in KINDS),
    *(("biopsies", kind, 0.2, 5) for kind in KINDS),
    *(("mnist", kind, 0.8, 10) for kind in KINDS),
    *(("cifar10n", "human_worst", 0.4, clean) for clean in (50, 100)),
]


def run(cell: dict[str, Any]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    from reweigh import data
    from reweigh.training import Config, FineTune, Optimizer, fit

    task = task_of(cell)
    steps = STEPS[cell["data"]]
    images = task.train.inputs.dtype == torch.uint8
    scaling = data.Scaling.of(task.train.examples(), task.peak) if images else data.Scaling()
    config = Config(
        method=cell["method"],
        steps=steps,
        seed=cell["seed"],
        batch=data.BatchOptions(
            size=100, clean_size=min(400, len(task.clean)), scaling=scaling, peak=task.peak
        ),
        optimizer=Optimizer(learning_rate=0.02, momentum=0.9),
        drops=((steps * 4 // 5, 0.1),),
        fine_tune=FineTune(steps=200, learning_rate=0.005),
        clip=10.0,
        average=0.1,
        checkpoint_every=0,
    )
    made: list[Any] = []
    make = _network(cell, task)

    def kept() -> Any:
        made.append(make())
        return made[-1]

    started = time.perf_counter()
    outcome = fit(kept, task, config)
    seconds = time.perf_counter() - started
    # `fit` returns the average; the model that was made last is the one that was trained, except with
    # methods that make a plain one in between. Fine-tuning starts from the average and has none.
    averaged = outcome.metrics["test_accuracy"]
    return {
        **cell,
        "test_accuracy": None if cell["method"] == "glc" else _accuracy(made[-1], task, config),
        "averaged_accuracy": averaged,
        "noise_auroc": outcome.metrics.get("noise_auroc"),
        "seconds": round(seconds, 1),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }


def _accuracy(model: Any, task: Any, config: Any) -> float:
    import torch

    from reweigh import data

    model.eval()
    with torch.no_grad():
        right = [
            (model(batch.inputs).argmax(1) == batch.targets).float()
            for batch in data.in_order(task.test, options=config.batch)
        ]
    return float(torch.cat(right).mean())


def task_of(cell: dict[str, Any]) -> Any:
    from reweigh import data

    recipe = data.Recipe(
        cell["data"], cell["noise"], rate=cell["rate"], clean_per_class=cell["clean"]
    )
    dataset = DATA.get(cell["data"], data.load)(cell["data"])
    if cell["noise"] == "background_flip":
        recipe = replace(recipe, background=cell["seed"] % len(dataset.classes))
    if cell["data"] == "texts":
        # A few classes have hardly more rows than are asked for.
        clean = cell["clean"] * len(dataset.classes)
        recipe = replace(recipe, clean=clean, clean_per_class=0)
    if cell["data"] in ("mnist", "cifar10n"):
        size = (1600 if cell["data"] == "mnist" else 4000) + 10 * cell["clean"]
        recipe = replace(recipe, size=size, test_per_class=200)
    return data.prepare(dataset, recipe, seed=cell["seed"])


def _network(cell: dict[str, Any], task: Any) -> Callable[[], Any]:
    from reweigh import models

    if cell["data"] in NETWORKS:
        width = NETWORKS[cell["data"]]
        shape = models.MLPOptions(
            inputs=task.train.inputs[0].numel(), hidden=(width, width), classes=len(task.classes)
        )
        return lambda: models.MLP(shape)
    if cell["data"] == "mnist":
        return lambda: models.build("lenet", classes=10)
    return small_network


def small_network() -> Any:
    """16, 64, 64 channels, halved three times."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip


@cache
def _texts(name: str) -> Any:
    from stability_problems import _tfidf, _titles

    from reweigh import data

    _, people, automatic, _, test, classes = _titles()
    inputs, test_inputs = _tfidf()
    return data.Dataset(
        name, data.Examples(inputs, people), data.Examples(test_inputs, test),
        tuple(map(str, range(classes))), peak=1, given={"automatic": automatic},
    )  # fmt: skip


@cache
def _table(name: str) -> Any:
    import torch
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    from reweigh import data

    if name == "biopsies":
        x, y = datasets.load_breast_cancer(return_X_y=True)
    else:
        x, y = datasets.make_classification(
            3000, 20, n_informative=8, n_redundant=4, n_classes=5, class_sep=1.2, random_state=3
        )
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    inputs, targets = (
        torch.tensor(StandardScaler().fit_transform(x)).float()[order],
        torch.tensor(y).long()[order],
    )
    cut = len(y) * 7 // 10
    return data.Dataset(
        name, data.Examples(inputs[:cut], targets[:cut]), data.Examples(inputs[cut:], targets[cut:]),
        tuple(map(str, range(int(targets.max()) + 1))), peak=1,
    )  # fmt: skip


DATA: dict[str, Callable[[str], Any]] = {"texts": _texts, "biopsies": _table, "made": _table}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=DEVELOPMENT)
    parser.add_argument("--data", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument(
        "--texts", type=Path, help="folder of the texts; without it they are left out"
    )
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    store = CellStore(arguments.out / "grid.jsonl", FIELDS)
    if not arguments.table:
        if arguments.texts:
            os.environ["REWEIGH_TEXTS"] = str(arguments.texts)
        parts = [p for p in arguments.data if p != "texts" or "REWEIGH_TEXTS" in os.environ]
        wanted = [
            c for c in cells(tuple(arguments.seeds))
            if c["data"] in parts and c["method"] in (arguments.methods or [c["method"]])
        ]  # fmt: skip
        store.run_missing(wanted, run, jobs=arguments.jobs)
    (arguments.out / "grid.md").write_text(table(list(store.rows().values())))
    print(f"wrote {arguments.out / 'grid.md'}")


if __name__ == "__main__":
    main()
