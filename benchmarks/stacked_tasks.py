"""Data of `stacked_runs.py`, by name, noise, its rate, clean rows of each class, and seed.

digits           scikit-learn's 8x8 digits
biopsies, made   a table of scikit-learn (2 classes), and one of its generator (5 classes)
texts            Yoruba titles by TF-IDF; labels from keyword lists, 33% wrong (see stability_problems.py)
mnist            1,600 images of MNIST
cifar            4,000 images of CIFAR-10 by features that were not learnt from labels (cifar_features.py);
                 human_worst: the worst labels that people gave them, 40% wrong
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from stacked_runs import Rows

Setting = tuple[str, str, float, int]  # data, noise, rate, clean rows of each class


def rows_of(setting: Setting, seed: int) -> Rows:
    """Inputs with mean 0 and deviation 1, or as the table or the features have them."""
    name, noise, rate, clean = setting
    if name == "cifar":
        from cifar_features import cifar_rows

        return Rows(*cifar_rows(noise, rate, clean, seed), 10)
    task = _task(setting, seed)
    parts = [part.examples() for part in (task.train, task.clean, task.test)]
    inputs = [p.inputs.float().flatten(1) / task.peak for p in parts]
    if name in ("digits", "mnist"):
        mean, std = inputs[0].mean(), inputs[0].std()
        inputs = [(x - mean) / std for x in inputs]
    both = [(x, p.targets) for x, p in zip(inputs, parts, strict=True)]
    return Rows(*both, len(task.classes))


def of_seeds(setting: Setting, seeds: Sequence[int]) -> list[Rows]:
    """One for each seed, all with as many clean and test rows as the smallest, so that they can be stacked."""
    data = [rows_of(setting, seed) for seed in seeds]
    clean, test = (min(len(part[1]) for part in parts) for parts in (
        [d.clean for d in data], [d.test for d in data],
    ))  # fmt: skip
    return [
        Rows(d.train, (d.clean[0][:clean], d.clean[1][:clean]), (d.test[0][:test], d.test[1][:test]), d.classes)
        for d in data
    ]  # fmt: skip


def _task(setting: Setting, seed: int) -> Any:
    from reweigh import data

    name, noise, rate, clean = setting
    recipe = data.Recipe(name, noise, rate=rate, clean_per_class=clean)
    dataset = DATA.get(name, data.load)(name)
    if noise == "background_flip":
        recipe = replace(recipe, background=seed % len(dataset.classes))
    if name == "texts":
        # A few classes have hardly more rows than are asked for.
        recipe = replace(recipe, clean=clean * len(dataset.classes), clean_per_class=0)
    if name == "mnist":
        recipe = replace(recipe, size=1600 + 10 * clean, test_per_class=200)
    return data.prepare(dataset, recipe, seed=seed)


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
