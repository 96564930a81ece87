"""What `stability.py` trains on: data, network, batches, for one cell.

digits    bundled, 40% wrong labels; mlp or cnn (with BatchNorm)
mnist49   4 against 9, 99.5% nines, 10 clean images; LeNet
cifar10   4,600 images, 40% background flips, 10 clean per class; ResNet-8 on half-size maps
texts     titles with labels from keyword lists and some from people (`--texts`); mlp on character
          TF-IDF, or a transformer with one layer on characters

`--texts` is a folder with train_clean.tsv (labels by people), train_clean_noisy_labels.tsv (the same rows,
automatic labels) and test.tsv, each with columns news_title and label.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import reweigh
from reweigh import data, models

TEXTS = "REWEIGH_TEXTS"  # how processes hear of --texts
LENGTH, CODES = (
    64,
    1024,
)  # characters of a text that the transformer reads; code points by remainder
Batch = tuple[Tensor, Tensor]


@dataclass
class Problem:
    """loss: of (model, batch). batches: endless (train, clean). test: inputs and targets."""

    model: nn.Module
    loss: Any
    batches: Iterator[tuple[Batch, Batch]]
    test: Batch


def problem(cell: dict[str, Any]) -> Problem:
    torch.manual_seed(_order(cell))
    return MAKERS[cell["data"]](cell)


def binary(model: nn.Module, batch: Batch) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1].float(), reduction="none")


CLASSES = reweigh.per_example(F.cross_entropy)


def digits(cell: dict[str, Any]) -> Problem:
    recipe = data.Recipe(
        "digits", f"{cell['noise']}_flip", rate=0.4, clean_per_class=cell["clean"],
        background=cell["seed"] % 10 if cell["noise"] == "background" else 0,
    )  # fmt: skip
    network = _mlp(64, 256, 10) if cell["model"] == "mlp" else _cnn()
    return _of_set("digits", recipe, cell, 10 * cell["clean"], network, CLASSES)


def mnist49(cell: dict[str, Any]) -> Problem:
    recipe = data.preset("mnist-imbalance", share=0.995)
    return _of_set("mnist", recipe, cell, 10, models.build("lenet", classes=2), binary)


def cifar10(cell: dict[str, Any]) -> Problem:
    recipe = data.preset("cifar10-background", seed=cell["seed"])
    recipe = replace(recipe, size=4600, hyper_validation=500, clean=0, clean_per_class=10)
    return _of_set("cifar10", recipe, cell, 100, models.build("resnet8-half"), CLASSES)


def _of_set(
    name: str, recipe: Any, cell: dict[str, Any], clean: int, model: nn.Module, loss: Any
) -> Problem:
    dataset = data.load(name)
    task = data.prepare(dataset, recipe, seed=cell["seed"])
    options = data.BatchOptions(
        size=cell["batch"], clean_size=_drawn(cell, clean), peak=dataset.peak
    )
    if name == "cifar10":
        options = replace(options, scaling=data.Scaling.of(task.train.examples(), dataset.peak))
    pairs = data.PairedBatches(task.train, task.clean, seed=_order(cell), options=options)
    test = task.test.head(2000).examples() if len(task.test) > 2000 else task.test.examples()
    inputs = test.inputs.float() / dataset.peak
    if options.scaling.mean:
        mean, std = (torch.tensor(x).view(-1, 1, 1) for x in vars(options.scaling).values())
        inputs = (inputs - mean) / std
    return Problem(model, loss, ((p.train, p.clean) for p in pairs), (inputs, test.targets))


def texts(cell: dict[str, Any]) -> Problem:
    titles, people, automatic, test_titles, test_labels, classes = _titles()
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(cell["seed"]))
    chosen, rest = order[: cell["clean"]], order[cell["clean"] :]
    if cell["model"] == "mlp":
        inputs, test = _tfidf()
        model: nn.Module = _mlp(inputs.shape[1], 64, classes)
    else:
        inputs, test = _codes(titles), _codes(test_titles)
        model = Reader(classes)
    train, clean = (inputs[rest], automatic[rest]), (inputs[chosen], people[chosen])
    both = zip(
        _draws(train, cell["batch"], _order(cell)),
        _draws(clean, _drawn(cell, cell["clean"]), _order(cell) + 1),
        strict=False,
    )
    return Problem(model, CLASSES, both, (test, test_labels))


MAKERS = {"digits": digits, "mnist49": mnist49, "cifar10": cifar10, "texts": texts}


def _order(cell: dict[str, Any]) -> int:
    """The seed of the first weights and of the order of the batches; the data are of the cell's own seed."""
    return int(cell["seed"]) + (1000 if cell["method"] == "twin" else 0)


def _drawn(cell: dict[str, Any], clean: int) -> int:
    """The size of a clean batch: a tenth or a half of the clean set, or all of it."""
    return max(1, round(clean * cell["drawn"]))


def _draws(examples: Batch, size: int, seed: int) -> Iterator[Batch]:
    """Batches without end: every example once, in random order, then all again."""
    random, left = torch.Generator().manual_seed(seed), torch.zeros(0, dtype=torch.long)
    while True:
        while len(left) < size:
            left = torch.cat([left, torch.randperm(len(examples[1]), generator=random)])
        yield examples[0][left[:size]], examples[1][left[:size]]
        left = left[size:]


@cache
def _titles() -> tuple[list[str], Tensor, Tensor, list[str], Tensor, int]:
    folder = Path(os.environ[TEXTS])

    def column(file: str, name: str) -> list[str]:
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            return [
                row[name] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            ]

    names = sorted(set(column("train_clean.tsv", "label")))

    def labels(file: str) -> Tensor:
        return torch.tensor([names.index(label) for label in column(file, "label")])

    return (
        column("train_clean.tsv", "news_title"), labels("train_clean.tsv"),
        labels("train_clean_noisy_labels.tsv"), column("test.tsv", "news_title"), labels("test.tsv"),
        len(names),
    )  # fmt: skip


@cache
def _tfidf() -> tuple[Tensor, Tensor]:
    """[n, 192] of the train and the test titles: what `reweigh train` makes of texts is much like it."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    train, *_, test, _, _ = _titles()
    counts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
    axes = TruncatedSVD(192, random_state=0)
    found = axes.fit_transform(counts.fit_transform(train)), axes.transform(counts.transform(test))
    return torch.tensor(8 * found[0]).float(), torch.tensor(8 * found[1]).float()


def _codes(titles: list[str]) -> Tensor:
    """[n, LENGTH]; 0 behind the end of a title."""
    rows = [[1 + ord(c) % (CODES - 1) for c in title[:LENGTH]] for title in titles]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


class Reader(nn.Module):
    """A transformer with one layer on characters; the mean over positions is classified."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.codes, self.places = nn.Embedding(CODES, width), nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.codes(codes) + self.places(torch.arange(codes.shape[1], device=codes.device))
        logits: Tensor = self.head(self.layer(x).mean(1))
        return logits


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, outputs),
    )  # fmt: skip


def _cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
