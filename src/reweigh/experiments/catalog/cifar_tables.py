"""Tables 1 and 2: CIFAR-10 and CIFAR-100 with 40% of the labels flipped."""

from __future__ import annotations

from ..experiment import Block, Experiment, Row, Target
from ..training_setup import Setting
from .cifar import BACKGROUND, NOTES, SMOKE, UNIFORM, full, small
from .paper_numbers import (
    CIFAR10_BACKGROUND,
    CIFAR10_UNIFORM,
    CIFAR100_BACKGROUND,
    CIFAR100_UNIFORM,
    OURS,
    TABLE_1,
    TABLE_2,
)

REPEATED = ("uniform", OURS, "reweigh")  # of the small scale, where the rest has one seed


def _table(
    name: str,
    *,
    title: str,
    paper: str,
    rows: tuple[Row, ...],
    targets: tuple[Target, ...],
    setting: Setting,
    clean_title: str,
) -> Experiment:
    methods = tuple(row.method for row in rows)
    return Experiment(
        id=name,
        title=title,
        paper=paper,
        shows="table",
        rows=rows,
        targets=targets,
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


def _uniform(name: str, data: str, targets: tuple[Target, ...]) -> Experiment:
    return _table(
        name,
        title=f"{data}, 40% of the labels flipped to any other class",
        paper="Table 1",
        rows=TABLE_1,
        targets=targets,
        setting=UNIFORM,
        clean_title="Using clean images",
    )


def _background(name: str, data: str, targets: tuple[Target, ...]) -> Experiment:
    return _table(
        name,
        title=f"{data}, 40% of the labels flipped to one background class",
        paper="Table 2",
        rows=TABLE_2,
        targets=targets,
        setting=BACKGROUND,
        clean_title="Using 10 clean images per class",
    )


TABLES = (
    _uniform("cifar10-uniform", "CIFAR-10", CIFAR10_UNIFORM),
    _uniform("cifar100-uniform", "CIFAR-100", CIFAR100_UNIFORM),
    _background("cifar10-background", "CIFAR-10", CIFAR10_BACKGROUND),
    _background("cifar100-background", "CIFAR-100", CIFAR100_BACKGROUND),
)
