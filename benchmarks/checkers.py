"""Who checks the checkers: are wrong labels among the checked rows found, and what is regained?

    python benchmarks/checkers.py             # runs the cells that are missing, then writes the table
    python benchmarks/checkers.py --table     # only the table

Of 50 checked rows, as many of each class, 0 to 5 get another label at random; 40% of the labels of the
train rows are wrong, flipped to any class or all to one. `reweigh.sentinels.contradictions` names checked
rows. A cell is a data set, a kind of noise, a number of flips and a seed.

    found, named      how many of the flipped rows are named, and how many rows are named in all
    auroc             of the margin that it names them by
    spoilt, mended,   accuracy on the rest of the data of the corrected linear model that learnt all train
    right             rows and the checked rows as they are, without those named, and with right labels

The threshold was settled on seeds 0 to 3; the table has seeds 10 to 14, run once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from cell_store import CellStore, Row
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import roc_auc_score

from reweigh.candidates import PlainData, SoftmaxRegression, posterior_rounds
from reweigh.sentinels import contradictions, suspect

RESULTS = Path(__file__).parents[1] / "results" / "checkers"
FIELDS = ("dataset", "noise", "flips", "seed")
SETS = {"digits": load_digits, "cancer": load_breast_cancer}
NOISES = {"any": "to any class", "one": "to one class"}
FLIPS, SEEDS, CHECKED = (0, 1, 2, 3, 5), range(10, 15), 50


def draw(dataset: str, noise: str, flips: int, seed: int):
    """The data, the rest of the rows with their classes, and which checked rows were flipped."""
    r = np.random.default_rng(seed)
    rows, truth = SETS[dataset](return_X_y=True)
    rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-9)
    classes = int(truth.max()) + 1
    order = r.permutation(len(truth))
    rows, truth = rows[order], truth[order]
    per = CHECKED // classes
    checked = np.concatenate([np.flatnonzero(truth == c)[:per] for c in range(classes)])
    rest = np.setdiff1d(np.arange(len(truth)), checked)
    train, test = rest[: int(0.7 * len(rest))], rest[int(0.7 * len(rest)) :]
    given, wrong = truth[train].copy(), r.random(len(train)) < 0.4
    shift = r.integers(1, classes, len(train))
    given[wrong] = (given + shift)[wrong] % classes if noise == "any" else 0
    labels, bad = truth[checked].copy(), r.permutation(len(checked))[:flips]
    labels[bad] = (labels[bad] + r.integers(1, classes, flips)) % classes
    flipped = np.zeros(len(checked), dtype=bool)
    flipped[bad] = True
    features = {"train": rows[train], "checked": rows[checked], "test": rows[test]}
    data = PlainData(features, given, labels, classes)
    return data, truth[test], truth[checked], flipped


def accuracy(data: PlainData, kept, labels, truth) -> float:
    """Of the corrected linear model that learnt the checked rows at `kept` with these labels."""
    linear = SoftmaxRegression()
    *_, last = posterior_rounds(
        linear, linear, data.features["train"], data.given, data.features["checked"][kept],
        labels[kept], classes=data.classes, rounds=2,
    )  # fmt: skip
    return float(np.mean(last.model.probabilities(data.features["test"]).argmax(1) == truth))


def judged(dataset: str, noise: str, flips: int, seed: int) -> dict[str, float | None]:
    data, truth, right, flipped = draw(dataset, noise, flips, seed)
    said = suspect(data, trees=dataset == "cancer", seed=seed).testimony
    found = contradictions(data.labels, said)
    every = np.arange(len(right))
    return {
        "found": int((found.named & flipped).sum()),
        "named": int(found.named.sum()),
        "auroc": float(roc_auc_score(flipped, found.p_rival - found.p_label)) if flips else None,
        "spoilt": accuracy(data, every, data.labels, truth),
        "mended": accuracy(data, np.flatnonzero(~found.named), data.labels, truth),
        "right": accuracy(data, every, right, truth),
    }


def table(cells) -> str:
    lines = [
        f"# Wrong labels among {CHECKED} checked rows", "",
        f"By `benchmarks/checkers.py`, seeds {SEEDS[0]} to {SEEDS[-1]}; accuracies are means, with ± half a "
        "95% interval of the difference to `spoilt`.", "",
        "| data | errors in the data | flipped | found | named by mistake | AUROC | spoilt | mended | all right |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for dataset in SETS:
        for noise, title in NOISES.items():
            for flips in FLIPS:
                here = [
                    c
                    for c in cells
                    if (c["dataset"], c["noise"], c["flips"]) == (dataset, noise, flips)
                ]
                if not here:
                    continue
                n, found = len(here), sum(c["found"] for c in here)
                false = sum(c["named"] for c in here) - found
                auroc = f"{np.mean([c['auroc'] for c in here]):.3f}" if flips else ""
                spoilt = np.array([c["spoilt"] for c in here])

                def shown(name, here=here, spoilt=spoilt, n=n):
                    values = np.array([c[name] for c in here])
                    half = 1.96 * (values - spoilt).std(ddof=1) / n**0.5 if n > 1 else 0
                    return f"{100 * values.mean():.1f} ± {100 * half:.1f}"

                lines.append(
                    f"| {dataset} | {title} | {flips} | {found} of {flips * n} | {false} of {(CHECKED - flips) * n} "
                    f"| {auroc} | {100 * spoilt.mean():.1f} | {shown('mended')} | {shown('right')} |"
                )
    return "\n".join(lines) + "\n"


def run(cell: Row) -> Row:
    return cell | judged(**{name: cell[name] for name in FIELDS})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seeds", help="other seeds, as 0,1,2: printed, not kept")
    asked = parser.parse_args()
    seeds = SEEDS if asked.seeds is None else [int(seed) for seed in asked.seeds.split(",")]
    cells = [
        dict(zip(FIELDS, (dataset, noise, flips, seed), strict=True))
        for seed in seeds for dataset in SETS for noise in NOISES for flips in FLIPS
    ]  # fmt: skip
    if asked.seeds is not None:
        print(table([run(cell) for cell in cells]))
        return
    store = CellStore(RESULTS / "cells.jsonl", FIELDS)
    if not asked.table:
        store.run_missing(cells, run, jobs=1)
    (RESULTS / "table.md").write_text(table(list(store.rows().values())))


if __name__ == "__main__":
    main()
