"""Is the error rate that each source of labels gets the right one, and what are weights by source worth?

    python benchmarks/audit_sources.py                        # runs the cells that are missing, then the table
    python benchmarks/audit_sources.py --table                # only the table
    python benchmarks/audit_sources.py --annotators FILE      # also looks at the annotators of CIFAR-10N

A cell has 30 sources of different care: every label of a source is the careful one with a probability that is
the source's own, else the careless one. Sources have 5 to about 100 rows each.

    cifar10n    labels that people gave: careful is "aggregate" (9% wrong), careless "worst" (40%)
    digits      careful is the truth, careless a draw of the other classes

    estimated   the shrunk rate (sentinels/sources.py), given labels of the checked rows known or not (simulated)
    unshrunk    mean of p_wrong of a source, known
    counted     what a user can do without: the share of wrong ones among the source's checked rows, the mean
                of all where it has none
    gain        accuracy on 500 other rows of logistic regression on all rows, weighed by source, less that of the
                same without weights, in points

FILE is side_info_cifar10N.csv, which the authors of CIFAR-10N (Wei et al., 2022) publish beside the labels: the worker
of every ten images. If its rows belong to the labels, workers differ in how often they are wrong. `dispersion` is
the chi-square of errors by worker over its degrees of freedom: 1 if the workers do not differ at all.

Seeds 11 to 13 showed that the mean of p_wrong makes sources look alike (its intervals held 1 to 18% of the true rates of
cifar10n); the estimate is another one since. Seeds 21 to 23 judge it, each run once.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from audit_flags import commit, number
from cell_store import CellStore
from scipy.stats import spearmanr
from sklearn import datasets

from reweigh import sentinels
from reweigh.candidates import PlainData, SoftmaxRegression, one_hot
from reweigh.encoders import edge_features
from reweigh.sentinels import source_rates, source_weights

RESULTS = Path(__file__).parents[1] / "results" / "audit"
FIELDS = ("set", "checked", "seed")
SETS, CHECKED, SEEDS = ("cifar10n", "digits"), (200, 50), range(21, 24)
SOURCES, ROWS, TEST = 30, 1200, 500


def labelled(name: str, draw):
    """Rows, true classes, careful and careless labels."""
    if name == "digits":
        bunch = datasets.load_digits()
        x = ((bunch.data - bunch.data.mean(0)) / (bunch.data.std(0) + 1e-6)).astype(np.float32)
        some = draw.permutation(len(x))[: ROWS + TEST]
        truth = bunch.target[some]
        return x[some], truth, truth, (truth + draw.integers(1, 10, len(some))) % 10
    from reweigh import data

    dataset = data.load("cifar10n")
    found = {}
    for labels in ("aggregate", "worst"):
        recipe = data.Recipe("cifar10n", f"human_{labels}", rate=0.4, clean_per_class=1)
        found[labels] = data.prepare(dataset, recipe, seed=0).train
    careful, careless = found["aggregate"], found["worst"]
    assert bool((careful.ids == careless.ids).all()), "the same images"
    some = draw.permutation(len(careful))[: ROWS + TEST]
    images = careful.inputs[careful.ids[some]].numpy()
    return edge_features(images), *(each[some].numpy() for each in (careful.truth, careful.targets, careless.targets))  # fmt: skip


def run_cell(cell: dict) -> dict:
    name, checked, seed = (cell[field] for field in FIELDS)
    began, draw = time.process_time(), np.random.default_rng([seed, checked])
    x, truth, careful, careless = labelled(name, draw)
    care, size = draw.permutation(np.linspace(0, 1, SOURCES)), draw.gamma(1.5, size=SOURCES) + 0.15
    source = draw.choice(SOURCES, len(x), p=size / size.sum())
    given = np.where(draw.random(len(x)) < care[source], careful, careless)
    test, some, train = np.split(np.arange(len(x)), [TEST, TEST + checked])
    data = PlainData({"train": x[train], "checked": x[some]}, given[train], truth[some], 10)
    wrong, mine = given[train] != truth[train], source[train]
    present, codes = np.unique(mine, return_inverse=True)
    true = np.bincount(codes, wrong) / np.bincount(codes)
    said = sentinels.hear_witnesses(data, trees=False, seed=seed)
    row = {**cell, "rows": len(train), "wrong": float(wrong.mean()), "sources": len(present)}
    for way, known in (("known", given[some]), ("simulated", None)):
        p = sentinels.judge_labels(data.given, data.labels, said, seed=seed, checked_given=known).train.p_wrong  # fmt: skip
        rates = source_rates(p, codes, len(present))
        counts = source_weights(rates, 10)[codes]
        row[way] = {
            "estimated": float(spearmanr(rates.rate, true)[0]),
            "unshrunk": float(spearmanr(rates.own, true)[0]),
            "off": float(np.abs(rates.rate - true).mean()),
            "within": float(np.mean((rates.low <= true) & (true <= rates.high))),
            "gain": 100 * (accuracy(data, counts, x[test], truth[test]) - accuracy(data, np.ones(len(train)), x[test], truth[test])),
        }  # fmt: skip
    known_wrong = given[some] != truth[some]
    by_count = [known_wrong[source[some] == s].mean() if (source[some] == s).any() else known_wrong.mean() for s in present]  # fmt: skip
    row["counted"] = float(np.nan_to_num(spearmanr(by_count, true)[0]))
    return {**row, "core_seconds": time.process_time() - began, "commit": commit()}


def accuracy(data: PlainData, counts, rows, truth) -> float:
    fitted = SoftmaxRegression().fit(data.features["train"], one_hot(data.given, 10), counts)
    return float((fitted.probabilities(rows).argmax(1) == truth).mean())


def annotators(file: Path) -> list[dict]:
    """Whether the published workers tell who was wrong, under either order of images."""
    import pandas as pd

    from reweigh import data

    table = pd.read_csv(file)
    dataset = data.load("cifar10n")
    rows = []
    for number_ in (1, 2, 3):
        recipe = data.Recipe("cifar10n", f"human_random{number_}", rate=0.4, clean_per_class=1)
        part = data.prepare(dataset, recipe, seed=0).train
        workers = np.repeat(table[f"Worker{number_}-id"].to_numpy(), 10)[part.ids.numpy()]
        wrong = (part.targets != part.truth).numpy()
        _, codes, counts = np.unique(workers, return_inverse=True, return_counts=True)
        rate, errors = wrong.mean(), np.bincount(codes, wrong)
        chi = float(((errors - counts * rate) ** 2 / (counts * rate * (1 - rate))).sum())
        freedom = len(counts) - 1
        rows.append({"set": f"workers of random{number_}", "checked": 0, "seed": 0, "workers": len(counts),
                     "wrong": float(rate), "dispersion": chi / freedom, "by_chance": float((2 / freedom) ** 0.5),
                     "core_seconds": 0.0, "commit": commit()})  # fmt: skip
    return rows


def tables(rows: list[dict]) -> str:
    cells, workers = ([r for r in rows if ("workers" in r) == is_worker] for is_worker in (False, True))  # fmt: skip
    lines = [
        f"30 sources of labels, of different care. {len(cells)} of {len(SETS) * len(CHECKED) * len(SEEDS)} cells, means over seeds. Written",
        "by `benchmarks/audit_sources.py`, which says what each column is.", "",
        "## Rank correlation of the estimated with the true error rate", "",
        "| data | checked | seeds | wrong | estimated, known | simulated | unshrunk | counted | off by, known | within 95%, known | simulated | gain by weights, known | simulated |",
        "|---" * 13 + "|",
    ]  # fmt: skip
    for name in SETS:
        for checked in CHECKED:
            mine = [c for c in cells if (c["set"], c["checked"]) == (name, checked)]
            if mine:

                def mean(*path, mine=mine):
                    values = [c[path[0]][path[1]] if len(path) > 1 else c[path[0]] for c in mine]
                    return float(np.mean(values))

                parts = [
                    name, str(checked), str(len(mine)), number(mean("wrong"), 2), number(mean("known", "estimated"), 2),
                    number(mean("simulated", "estimated"), 2), number(mean("known", "unshrunk"), 2), number(mean("counted"), 2),
                    number(mean("known", "off")), f"{mean('known', 'within'):.0%}", f"{mean('simulated', 'within'):.0%}",
                    f"{mean('known', 'gain'):+.1f}", f"{mean('simulated', 'gain'):+.1f}",
                ]  # fmt: skip
                lines.append("| " + " | ".join(parts) + " |")
    if workers:
        lines += ["", "## The annotators of CIFAR-10N", "",
                  "The published workers do not tell who was wrong: errors by worker spread as by chance (1), so they do not belong to",
                  "these labels in this order, and no error rate of theirs can be compared.", "",
                  "| labels | workers | wrong | dispersion | standard deviation by chance |", "|---|---|---|---|---|"]  # fmt: skip
        lines += [f"| {w['set']} | {w['workers']} | {w['wrong']:.3f} | {w['dispersion']:.2f} | {w['by_chance']:.2f} |" for w in workers]  # fmt: skip
    return "\n".join([*lines, "", f"{sum(r['core_seconds'] for r in cells) / 60:.1f} core-minutes."]) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--annotators", type=Path, help="side_info_cifar10N.csv")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    store = CellStore(RESULTS / "sources.jsonl", FIELDS)
    if arguments.annotators:
        done = store.rows()
        store.append([row for row in annotators(arguments.annotators) if store.key(row) not in done])  # fmt: skip
    if not arguments.table:
        cells = [dict(zip(FIELDS, (n, m, s), strict=True)) for s in SEEDS for m in CHECKED for n in SETS]  # fmt: skip
        store.run_missing(cells, run_cell, jobs=arguments.jobs)
    text = tables(list(store.rows().values()))
    (RESULTS / "sources.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
