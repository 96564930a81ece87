"""Tables 1 and 2: CIFAR-10 and CIFAR-100 with 40% of the labels flipped."""

from __future__ import annotations

from ..experiment import Block, Experiment
from ..training_setup import Setting
from .cifar import BACKGROUND, NOTES, SMOKE, UNIFORM, full, small
from .paper_numbers import OURS, TABLE_1, TABLE_2, PaperTable

DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
REPEATED = ("uniform", OURS, "reweigh")  # of the small scale, where the rest has one seed


def _table(
    dataset: str, setting: Setting, table: PaperTable, *, paper: str, flips: str, clean_title: str
) -> Experiment:
    name = f"{dataset}-{setting['noise']}"
    methods = tuple(row.method for row in table.rows)
    return Experiment(
        id=name,
        title=f"{DATASETS[dataset]}, 40% of the labels flipped to {flips}",
        paper=paper,
        shows="table",
        rows=table.rows,
        targets=table.targets(dataset),
        blocks={
            "smoke": (Block(SMOKE, methods, (setting,), seeds=1),),
            "small": (
                Block(small(name), methods, (setting,), seeds=1),
                Block(small(name), REPEATED, (setting,), seeds=3),
            ),
            "paper": (Block(full(name), methods, (setting,), seeds=5),),
        },
        published={"paper": (Block(full(name, published=True), methods, (setting,), seeds=5),)},
        clean_title=clean_title,
        notes=NOTES,
    )


TABLES = tuple(
    _table(dataset, setting, table, paper=paper, flips=flips, clean_title=clean_title)
    for setting, table, paper, flips, clean_title in (
        (UNIFORM, TABLE_1, "Table 1", "any other class", "Using clean images"),
        (
            BACKGROUND, TABLE_2, "Table 2", "one background class",
            "Using 10 clean images per class",
        ),
    )
    for dataset in DATASETS
)  # fmt: skip
