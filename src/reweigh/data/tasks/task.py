"""A task: a data set made untrustworthy on purpose, cut into the parts an experiment needs.

    data set -> keep the asked classes and counts -> split -> corrupt train and hyper-validation,
                or take the labels that people gave them
             -> Task(train, hyper_validation, clean, test)

The clean set and the test set keep their true labels. Train and hyper-validation get the same kind
and rate of noise, drawn independently. Parts point into the data set and copy no image.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...errors import SettingError, unknown
from ...rng import derive
from .corruptions import corrupt
from .dataset import Dataset, Part, whole
from .splits import evenly, imbalance, shares, split

HUMAN = "human_"
"""Begins the name of a corruption that is none: labels people gave, such as "human_worst"."""


@dataclass(frozen=True)
class Recipe:
    """What to make of a data set; `presets.py` has the paper's as named values.

    corruption         a name in `CORRUPTIONS`; or HUMAN + one of the labels that people gave, such as
                       "human_worst" of cifar10n: nothing is drawn, `rate` has no effect
    keep               classes to keep, relabelled 0, 1, ... in this order; empty keeps all
    majority, share    with two kept classes: `majority` (as the data set names it) holds `share`
    size               examples kept before splitting, evenly of each class but for a `keep` of two;
                       0 keeps all
    clean_even         `clean` is spread evenly over the classes
    skip               leave out this many examples at the head of the train set
    clean_in_train     the clean images stay in the train set too, under their corrupted labels
    test_per_class     how many test examples of each class, the first ones; 0 keeps all
    variant            see `corruptions.uniform_flip`
    """

    dataset: str
    corruption: str = "none"
    rate: float = 0.0
    background: int = 0
    variant: str = "paper"
    clean: int = 0
    clean_per_class: int = 0
    clean_even: bool = False
    hyper_validation: int = 0
    clean_in_train: bool = False
    keep: tuple[int, ...] = ()
    majority: int = 0
    share: float = 0.5
    size: int = 0
    skip: int = 0
    test_per_class: int = 0


@dataclass(frozen=True)
class Task:
    """The parts of one experiment at one seed."""

    train: Part
    hyper_validation: Part
    clean: Part
    test: Part
    classes: tuple[str, ...]
    peak: int


def prepare(dataset: Dataset, recipe: Recipe, *, seed: int) -> Task:
    """Build the task that `recipe` describes: one seed, one task, on every machine."""
    given = _human_labels(dataset, recipe)
    pool, classes = _pool(dataset, recipe, seed)
    cut = split(
        pool.truth, seed=seed, clean=recipe.clean, clean_per_class=recipe.clean_per_class,
        clean_even=recipe.clean_even, hyper_validation=recipe.hyper_validation,
    )  # fmt: skip
    train_ids = cut.train
    if recipe.clean_in_train:
        train_ids = torch.cat([cut.train, cut.clean]).sort().values
    own_options: dict[str, dict[str, Any]] = {
        "uniform_flip": {"variant": recipe.variant},
        "background_flip": {"background": recipe.background},
    }
    options = own_options.get(recipe.corruption, {})
    options |= {"rate": recipe.rate, "classes": len(classes)}

    def noisy(ids: Tensor, purpose: str) -> Part:
        part, part_seed = pool.take(ids), derive(seed, purpose)
        if given is not None:
            return replace(part, targets=given[part.ids])
        labels = corrupt(recipe.corruption, part.truth, seed=part_seed, **options).labels
        return replace(part, targets=labels)

    return Task(
        train=noisy(train_ids, "train"),
        hyper_validation=noisy(cut.hyper_validation, "hyper_validation"),
        clean=pool.take(cut.clean),
        test=_test(dataset, recipe),
        classes=classes,
        peak=dataset.peak,
    )


def _human_labels(dataset: Dataset, recipe: Recipe) -> Tensor | None:
    """What people called every train image of the data set; None if the recipe makes the errors."""
    if not recipe.corruption.startswith(HUMAN):
        return None
    name = recipe.corruption.removeprefix(HUMAN)
    if name not in dataset.given:
        raise unknown(f"labels of {dataset.name}", name, dataset.given)
    if recipe.keep:
        raise SettingError(
            f"keep={recipe.keep} with labels that people gave, which may be of any class; "
            "expected all classes: leave keep out"
        )
    return dataset.given[name]


def _pool(dataset: Dataset, recipe: Recipe, seed: int) -> tuple[Part, tuple[str, ...]]:
    """The examples the recipe starts from, relabelled, before any split or noise."""
    labels = dataset.train.targets[recipe.skip :]
    ids = torch.arange(recipe.skip, len(dataset.train))
    if not recipe.keep:
        if recipe.size:
            counts = evenly(recipe.size, range(len(dataset.classes)), seed=seed)
            ids = ids[imbalance(labels, counts, seed=seed)]
        return whole(dataset.train).take(ids), dataset.classes
    _check_kept(dataset, recipe)
    if recipe.size:
        minority = next(c for c in recipe.keep if c != recipe.majority)
        counts = shares(
            majority=recipe.majority, minority=minority, share=recipe.share, size=recipe.size
        )
    else:
        counts = {c: int((labels == c).sum()) for c in recipe.keep}
    chosen = imbalance(labels, counts, seed=seed)
    renamed = _renamed(labels[chosen], recipe.keep)
    part = Part(dataset.train.inputs, ids[chosen], renamed, renamed.clone())
    return part, tuple(dataset.classes[c] for c in recipe.keep)


def _check_kept(dataset: Dataset, recipe: Recipe) -> None:
    for label in recipe.keep:
        if not 0 <= label < len(dataset.classes):
            raise SettingError(
                f"class {label} was asked; {dataset.name} has {len(dataset.classes)}"
            )
    if recipe.size and (len(recipe.keep) != 2 or recipe.majority not in recipe.keep):
        raise SettingError(
            f"keep={recipe.keep} with majority={recipe.majority}; "
            "a share needs two kept classes, one of them the majority"
        )


def _test(dataset: Dataset, recipe: Recipe) -> Part:
    labels = dataset.test.targets
    kept = recipe.keep or tuple(range(len(dataset.classes)))
    ids = torch.arange(len(labels))
    if recipe.keep or recipe.test_per_class:
        ids = torch.cat([_head(ids[labels == c], recipe.test_per_class) for c in kept])
        ids = ids.sort().values
    truth = _renamed(labels[ids], kept)
    return Part(dataset.test.inputs, ids, truth, truth.clone())


def _head(ids: Tensor, count: int) -> Tensor:
    if count > len(ids):
        raise SettingError(f"{count} test examples a class were asked, one class has {len(ids)}")
    return ids[:count] if count else ids


def _renamed(labels: Tensor, keep: tuple[int, ...]) -> Tensor:
    table = torch.full((max(keep) + 1,), -1, dtype=torch.int64)
    table[torch.tensor(keep)] = torch.arange(len(keep))
    return table[labels]
