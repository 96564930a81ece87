"""What `reweigh audit` and `reweigh fix` promise, held against the truth: probabilities, flags, repairs.

    python benchmarks/audit_flags.py             # runs the cells that are missing, then writes the tables
    python benchmarks/audit_flags.py --table     # only the tables
    python benchmarks/audit_flags.py --dev       # seeds 1 to 3, into a file that no table reads

A cell is a data set with wrong labels, a number of checked rows and a seed; it is appended to
results/audit/flags.jsonl when it is done. Checked rows are drawn at random, two of each class at least. All rank
the same rows, from the same features, with plain models (sentinels/witnesses.py); no network is trained.

    simulated    our p_wrong; the labels that checked rows have in the data are not known
    known        the same, where they are known (checked rows that are among the data)
    best part    the best single piece of the evidence that p_wrong is made of (sentinels/evidence.py), chosen
                 knowing the truth: an advantage no user has
    confidence,  cleanlab's scores (Northcutt et al., 2021) by their formulas, 1 - p(given) and largest other p
    margin       - p(given), from scikit-learn's 5-fold logistic regression on train and checked rows
    forest       1 - p(given) of a 5-fold random forest, 100 trees (tables)
    neighbours   1 - share of the given label among the 20 nearest rows (as Zhu et al., 2022)
    checked      1 - p(given) of a logistic regression on the checked rows alone
    loss, aum    mean loss and area under the margin (Pleiss et al., 2020) of a logistic regression trained by
                 200 steps of gradient descent on train and checked rows

Settings were chosen on seed 1 of these sets (an earlier state on 1 to 3, and judged on seed 11, which is therefore no longer used);
seeds 12 to 14 judge, each run once. The tables name the seeds that have been run. `promise` cells draw 100 data sets each, without forests, and note the share of false alarms in each.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
from cell_store import CellStore
from scipy.special import softmax
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from reweigh import sentinels
from reweigh.candidates import PlainData, Rotation, SoftmaxRegression, one_hot
from reweigh.encoders import edge_features, fit_ngrams
from reweigh.sentinels import RELABEL, SET_ASIDE, Policy, dynamics, evidence

RESULTS = Path(__file__).parents[1] / "results" / "audit"
TEXTS = Path(__file__).parents[2] / "shared" / "data"  # the folder with yoruba_newsclass
FIELDS = ("set", "checked", "seed")
DEV, JUDGING = range(1, 4), range(12, 15)
CHECKED = (200, 50, 10)
RATE = 0.1
PROMISED = (
    "digits_uniform_40",
    "digits_background_40",
    "digits_instance_25",
    "biopsies_uniform_20",
    "made_table_instance_25",
)
PROMISE_CHECKED = (150, 50)
RUNS = 100
IMAGES = 1000
PROMISE_ROWS = 400


def table_set(name: str):
    """Features [n, width] and true classes of a table."""
    loaders = {"digits": datasets.load_digits, "biopsies": datasets.load_breast_cancer}
    if name in loaders:
        bunch = loaders[name]()
        x, truth = bunch.data, bunch.target
    else:
        x, truth = datasets.make_classification(
            3000, 20, n_informative=8, n_redundant=4, n_classes=4, n_clusters_per_class=2,
            class_sep=1.2, random_state=7,
        )  # fmt: skip
    return ((x - x.mean(0)) / (x.std(0) + 1e-6)).astype(np.float32), truth


def flipped(x, truth, kind: str, rate: float, draw) -> np.ndarray:
    """Labels of which about `rate` are wrong; "instance": where a weak model doubts, as it would say."""
    classes, wrong = truth.max() + 1, draw.random(len(truth)) < rate
    if kind == "uniform":
        other = (truth + draw.integers(1, classes, len(truth))) % classes
    elif kind == "background":
        other = np.ones(len(truth), dtype=truth.dtype)
    else:
        weak = LogisticRegression(max_iter=200).fit(x[:200], truth[:200])
        p = np.zeros((len(truth), classes))
        p[:, weak.classes_] = weak.predict_proba(x)
        p[np.arange(len(truth)), truth] = 0
        hardness = p.sum(1).argsort().argsort() / len(truth)
        wrong, other = draw.random(len(truth)) < 2 * rate * hardness, p.argmax(1)
    return np.where(wrong, other, truth)


def _table(name: str, kind: str, rate: int):
    def load(seed: int):
        x, truth = table_set(name)
        draw = np.random.default_rng(seed)
        order = draw.permutation(len(truth))
        x, truth = x[order], truth[order]
        return "table", x, truth, flipped(x, truth, kind, rate / 100, draw)

    return load


def _yoruba(seed: int):
    import real_data_sets

    found = real_data_sets.yoruba(TEXTS)
    n = len(found.truth) - found.test
    names, truth = np.unique(found.truth[:n], return_inverse=True)
    given = np.searchsorted(names, found.given(seed)[:n])
    return "text", found.rows["text"].to_numpy()[:n], truth, given


def _human(labels: str):
    def load(seed: int):
        from reweigh import data

        dataset = data.load("cifar10n")
        draw = np.random.default_rng(seed)
        recipe = data.Recipe("cifar10n", f"human_{labels}", rate=0.4, clean_per_class=1)
        task = data.prepare(dataset, recipe, seed=seed).train
        some = np.sort(draw.permutation(len(task))[:IMAGES])
        images = task.inputs[task.ids[some]].numpy()
        return "images", edge_features(images), task.truth[some].numpy(), task.targets[some].numpy()

    return load


SETS = {
    "digits_uniform_40": _table("digits", "uniform", 40),
    "digits_background_40": _table("digits", "background", 40),
    "digits_instance_25": _table("digits", "instance", 25),
    "made_table_instance_25": _table("made", "instance", 25),
    "biopsies_uniform_20": _table("biopsies", "uniform", 20),
    "yoruba_rules": _yoruba,
    "cifar10n_aggregate": _human("aggregate"),
    "cifar10n_random1": _human("random1"),
    "cifar10n_worst": _human("worst"),
}


def drawn(name: str, checked: int, seed: int):
    """Data for plain models, true classes of the train rows, given labels of the checked rows."""
    kind, rows, truth, given = SETS[name](seed)
    draw = np.random.default_rng([seed, checked])
    order = draw.permutation(len(truth))
    first = np.concatenate([order[truth[order] == c][:2] for c in range(truth.max() + 1)])
    rest = order[~np.isin(order, first)]
    more = max(0, checked - len(first))
    some, train = np.concatenate([first, rest[:more]]), rest[more:]
    if kind == "text":
        ngrams = fit_ngrams([*rows[train], *rows[some]])
        a, b = (ngrams.encode(list(rows[places])) for places in (train, some))
        rotation = Rotation.over(b, a, seed=seed)
        features = {"train": rotation(a), "checked": rotation(b)}
    else:
        features = {"train": rows[train], "checked": rows[some]}
    data = PlainData(features, given[train], truth[some], int(truth.max()) + 1)
    return kind, data, truth[train], given[some]


def trained_by_descent(data: PlainData):
    """Mean loss and area under the margin of each train row over 200 steps."""
    x = np.concatenate([data.features["train"], data.features["checked"]])
    x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1).astype(np.float32)
    labels = np.concatenate([data.given, data.labels])
    y, w = one_hot(labels, data.classes), np.zeros((x.shape[1], data.classes), np.float32)
    step = 1.0 / float((x**2).sum(1).mean())
    n, rows = len(data.given), np.arange(len(data.given))
    losses, margins = np.zeros(n), np.zeros(n)
    for _ in range(200):
        logits = x @ w
        p = softmax(logits, axis=1)
        w -= (step * 4 * (x.T @ (p - y)) / len(x) * data.classes).astype(np.float32)
        mine = logits[:n].copy()
        of_given = mine[rows, data.given].copy()
        mine[rows, data.given] = -np.inf
        losses -= np.log(np.maximum(p[rows, data.given], 1e-9))
        margins += of_given - mine.max(1)
    return losses / 200, -margins / 200


def cross_validated(model, data: PlainData, folds: np.ndarray) -> np.ndarray:
    """Out-of-fold probabilities of the train rows, the checked rows added to every fold."""
    x, checked = data.features["train"], data.features["checked"]
    found = np.zeros((len(data.given), data.classes))
    for fold in range(folds.max() + 1):
        rows, labels = np.concatenate([x[folds != fold], checked]), np.concatenate([data.given[folds != fold], data.labels])  # fmt: skip
        model.fit(rows, labels)
        found[np.ix_(folds == fold, model.classes_)] = model.predict_proba(x[folds == fold])
    return found


def rivals(data: PlainData, said, kind: str, seed: int) -> dict[str, np.ndarray]:
    rows = np.arange(len(data.given))
    linear = cross_validated(LogisticRegression(max_iter=300), data, said.train_folds)
    others = linear.copy()
    others[rows, data.given] = -1
    found = {
        "confidence": 1 - linear[rows, data.given],
        "margin": others.max(1) - linear[rows, data.given],
        "neighbours": 1 - said.train["neighbours"][rows, data.given],
    }
    if kind == "table":
        forest = RandomForestClassifier(100, random_state=seed)
        p = cross_validated(forest, data, said.train_folds)
        found["forest"] = 1 - p[rows, data.given]
    checked = SoftmaxRegression(10.0).fit(
        data.features["checked"], one_hot(data.labels, data.classes), np.ones(len(data.labels))
    )
    found["checked"] = 1 - checked.probabilities(data.features["train"])[rows, data.given]
    found["loss"], found["aum"] = trained_by_descent(data)
    return found


def judged(found, data: PlainData, truth: np.ndarray, given: np.ndarray | None) -> dict:
    """Ours against the truth; `given` labels of the checked rows, where they are known."""
    wrong, said = data.given != truth, found.train
    bins = np.minimum((10 * said.p_wrong).astype(int), 9)
    here = [bins == k for k in range(10) if (bins == k).any()]
    flagged = said.flagged_from <= RATE
    policy = Policy.of(said, RATE)
    actions = policy.actions(said)
    labels, kept = np.where(actions == RELABEL, said.suggested, data.given), actions != SET_ASIDE
    estimate = found.joint.errors()
    unknown = None if found.by_pairs else estimate
    right = sentinels.right_labels(found.sentinels, policy, wrong=unknown)
    hit = said.suggested == truth
    pairs = given if found.by_pairs else None
    turned = evidence.transitions(found.testimony, data.given, data.labels, pairs)
    parts = evidence.LabelEvidence.of_train(found.testimony, turned, data.given).values
    names = ("posterior", *found.testimony.train, *dynamics.NAMES)
    return {
        "parts": {n: float(roc_auc_score(wrong, v)) for n, v in zip(names, parts.T, strict=True)},
        "suggested_right_where_wrong": float(hit[wrong].mean()),
        "auroc": float(roc_auc_score(wrong, said.p_wrong)),
        "average_precision": float(average_precision_score(wrong, said.p_wrong)),
        "reliability": [[int(k), int(b.sum()), float(said.p_wrong[b].mean()), float(wrong[b].mean())]
                        for k in range(10) if (b := bins == k).any()],
        "calibration_error": float(sum(abs(said.p_wrong[b].mean() - wrong[b].mean()) * b.mean() for b in here)),
        "wrong_said": [estimate.share, estimate.low, estimate.high],
        "flagged": int(flagged.sum()),
        "false_alarms": float((flagged & ~wrong).sum() / max(1, flagged.sum())),
        "found": float((flagged & wrong).sum() / max(1, wrong.sum())),
        "suggestions": {str(t): [int((said.p_suggested >= t).sum()), float(hit[said.p_suggested >= t].mean())]
                        for t in (0.5, 0.8) if (said.p_suggested >= t).any()},
        "relabelled": int((actions == RELABEL).sum()), "set_aside": int((~kept).sum()),
        "right_after": float((labels == truth)[kept].mean()),
        "right_after_said": [right.after.share, right.after.low, right.after.high],
    }  # fmt: skip


def run_cell(cell: dict) -> dict:
    name, checked, seed = (cell[field] for field in FIELDS)
    began = time.process_time()
    kind, data, truth, given = drawn(name, checked, seed)
    said = sentinels.hear_witnesses(data, trees=kind == "table", seed=seed)
    wrong = data.given != truth
    row = {**cell, "rows": len(truth), "wrong": float(wrong.mean()), "right_before": float(1 - wrong.mean()),
           "really_checked": len(data.labels)}  # fmt: skip
    for column, known in (("simulated", None), ("known", given)):
        found = sentinels.judge_labels(
            data.given, data.labels, said, seed=seed, checked_given=known
        )
        row[column] = {**judged(found, data, truth, known), "by_pairs": found.by_pairs}
    others = rivals(data, said, kind, seed)
    row["auroc"] = {k: float(roc_auc_score(wrong, v)) for k, v in others.items()}
    row["average_precision"] = {k: float(average_precision_score(wrong, v)) for k, v in others.items()}  # fmt: skip
    return {**row, "core_seconds": time.process_time() - began, "commit": commit()}


def run_promise(cell: dict) -> dict:
    """RUNS data sets: the share of false alarms in each, for both ways."""
    began, shares, found = time.process_time(), {"simulated": [], "known": []}, {"simulated": [], "known": []}  # fmt: skip
    for k in range(RUNS):
        seed = 1000 * cell["seed"] + k
        _, data, truth, given = drawn(cell["set"], cell["checked"], seed)
        some = np.random.default_rng(seed).permutation(len(truth))[:PROMISE_ROWS]
        data = PlainData({**data.features, "train": data.features["train"][some]}, data.given[some], data.labels, data.classes)  # fmt: skip
        truth = truth[some]
        said, wrong = sentinels.hear_witnesses(data, trees=False, seed=seed), data.given != truth
        for way, known in (("simulated", None), ("known", given)):
            judged_rows = sentinels.judge_labels(
                data.given, data.labels, said, seed=seed, checked_given=known
            ).train
            flagged = judged_rows.flagged_from <= RATE
            shares[way].append(float((flagged & ~wrong).sum() / max(1, flagged.sum())))
            found[way].append(float((flagged & wrong).sum() / max(1, wrong.sum())))
    seconds = time.process_time() - began
    return {**cell, "runs": RUNS, "shares": shares, "found": found, "core_seconds": seconds, "commit": commit()}  # fmt: skip


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          cwd=Path(__file__).parent, check=False).stdout.strip()  # fmt: skip


def mean(cells: list[dict], *path: str) -> float:
    values = []
    for cell in cells:
        value = cell
        for key in path:
            if value is not None:
                value = value.get(key) if isinstance(value, dict) else value[int(key)]
        if value is not None:
            values.append(value)
    return float(np.mean(values)) if values else float("nan")


def number(value: float, digits: int = 3) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def rank_table(groups: dict, metric: str) -> list[str]:
    others = ("confidence", "margin", "forest", "neighbours", "checked", "loss", "aum")
    lines = ["| data | checked | wrong | simulated | known | " + " | ".join(others) + " |", "|---" * (5 + len(others)) + "|"]  # fmt: skip
    for (name, checked), cells in groups.items():
        values = [mean(cells, "simulated", metric), mean(cells, "known", metric)]
        values += [mean(cells, metric, other) for other in others]
        top = np.nanmax(values)
        shown = [f"**{number(v)}**" if v == top else number(v) for v in values]
        lines.append(f"| {name} | {checked} | {mean(cells, 'wrong'):.2f} | " + " | ".join(shown) + " |")  # fmt: skip
    return [*lines, ""]


def parts_table(rows: list[dict]) -> list[str]:
    """One suspicion beside the best piece of evidence, cell by cell."""
    lines = ["| checked | way | cells | mean of the difference | worst | more than .01 behind |", "|---" * 6 + "|"]  # fmt: skip
    for checked in sorted({row["checked"] for row in rows}):
        for way in ("known", "simulated"):
            away = {
                f"{row['set']} ({row['seed']})": row[way]["auroc"] - max(row[way]["parts"].values())
                for row in rows if row["checked"] == checked
            }  # fmt: skip
            behind = sorted((v, k) for k, v in away.items() if v < -0.01)
            values = list(away.values())
            lines.append(f"| {checked} | {way} | {len(values)} | {np.mean(values):+.4f} | {min(values):+.3f} | "
                         f"{len(behind)}{': ' if behind else ''}{', '.join(f'{k} {v:+.3f}' for v, k in behind)} |")  # fmt: skip
    return [*lines, ""]


def ours_table(groups: dict, way: str) -> list[str]:
    lines = [
        "| data | checked | wrong | said | interval | held | calibration error | flagged | false alarms | found | "
        "suggestions right at .5 / .8 | of wrong rows | right before | right after | said | held |", "|---" * 16 + "|",
    ]  # fmt: skip
    for (name, checked), cells in groups.items():
        inside = sum(
            c[way]["wrong_said"][1] <= c["wrong"] <= c[way]["wrong_said"][2] for c in cells
        )
        later = sum(
            c[way]["right_after_said"][1] <= c[way]["right_after"] <= c[way]["right_after_said"][2]
            for c in cells
        )
        ends = " to ".join(f"{mean(cells, way, 'wrong_said', k):.2f}" for k in "12")
        parts = [
            name, str(checked), number(mean(cells, "wrong")), number(mean(cells, way, "wrong_said", "0")),
            ends, f"{inside} of {len(cells)}", number(mean(cells, way, "calibration_error")), f"{mean(cells, way, 'flagged'):.0f}",
            number(mean(cells, way, "false_alarms")), number(mean(cells, way, "found"), 2),
            f"{number(mean(cells, way, 'suggestions', '0.5', '1'), 2)} / {number(mean(cells, way, 'suggestions', '0.8', '1'), 2)}",
            number(mean(cells, way, "suggested_right_where_wrong"), 2), number(mean(cells, "right_before")), number(mean(cells, way, "right_after")),
            number(mean(cells, way, "right_after_said", "0")), f"{later} of {len(cells)}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(parts) + " |")
    return [*lines, ""]


def reliability_table(rows: list[dict]) -> list[str]:
    """What was said and what was so, by tenths of p_wrong, over all cells."""
    lines = ["| way | tenth | rows | said | wrong |", "|---" * 5 + "|"]
    for way in ("known", "simulated"):
        bins = np.array([each for row in rows for each in row[way]["reliability"]])
        for k in range(10):
            here = bins[bins[:, 0] == k]
            if len(here):
                said, wrong = (np.average(here[:, c], weights=here[:, 1]) for c in (2, 3))
                lines.append(f"| {way} | {k} | {here[:, 1].sum():.0f} | {said:.3f} | {wrong:.3f} |")
    return [*lines, ""]


def behind_table(rows: list[dict]) -> list[str]:
    """Cells in which a column of the first table is more than .01 ahead of ours."""
    lines = [
        "| checked | way | cells | behind | which (seed, difference, column that is ahead) |",
        "|---" * 5 + "|",
    ]
    for checked in sorted({row["checked"] for row in rows}):
        for way in ("known", "simulated"):
            some, behind = [row for row in rows if row["checked"] == checked], []
            for row in some:
                best = max(row["auroc"], key=row["auroc"].get)
                if (away := row[way]["auroc"] - row["auroc"][best]) < -0.01:
                    behind.append((away, f"{row['set']} ({row['seed']}) {away:+.3f} {best}"))
            lines.append(
                f"| {checked} | {way} | {len(some)} | {len(behind)} | {', '.join(t for _, t in sorted(behind))} |"
            )
    return [*lines, ""]


def promise_table(cells: list[dict]) -> list[str]:
    lines = ["| data | checked | way | false alarms, mean | 95% of the mean | 90% of runs under | found |", "|---" * 7 + "|"]  # fmt: skip
    for cell in cells:
        for way, shares in cell["shares"].items():
            half = 1.96 * np.std(shares, ddof=1) / np.sqrt(len(shares))
            lines.append(f"| {cell['set']} | {cell['checked']} | {way} | {np.mean(shares):.3f} | ± {half:.3f} | "
                         f"{np.quantile(shares, 0.9):.3f} | {np.mean(cell['found'][way]):.2f} |")  # fmt: skip
    return [*lines, ""]


def tables(rows: list[dict], promises: list[dict]) -> str:
    groups: dict = {}
    for row in sorted(rows, key=lambda r: (list(SETS).index(r["set"]), r["checked"])):
        groups.setdefault((row["set"], row["checked"]), []).append(row)
    seeds = sorted({row["seed"] for row in rows})
    lines = [
        f"Plain models only; means over seeds {seeds}. {len(rows)} of {len(CHECKED) * len(SETS) * len(JUDGING)} cells and "
        f"{len(promises)} of {2 * len(PROMISED)} promises have been run. Written by `benchmarks/audit_flags.py`, which says what each",
        "column is. Every class has two checked rows at least: ten classes have 20 instead of 10.", "",
        "## AUROC of wrong labels", "", *rank_table(groups, "auroc"),
        "## Average precision", "", *rank_table(groups, "average_precision"),
        "## One suspicion beside its best part (difference of AUROC; the part is chosen knowing the truth)", "", *parts_table(rows),
        "## Ours beside the best other column (AUROC; the column is chosen knowing the truth)", "", *behind_table(rows),
        f"## What is promised, and what came (false-alarm rate {RATE:g})", "",
        "### Given labels of the checked rows known", "", *ours_table(groups, "known"),
        "### Not known: errors are taken to depend on the true class alone", "", *ours_table(groups, "simulated"),
        "## Probabilities: said and so, all cells together", "", *reliability_table(rows),
        f"## Realised false alarms over {RUNS} runs (promised: {RATE:g}; {PROMISE_ROWS} rows, no forests)", "",
        *promise_table(promises),
        f"{len(rows)} + {len(promises)} cells, {sum(r['core_seconds'] for r in [*rows, *promises]) / 60:.0f} core-minutes.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def promised(checked: int) -> list[dict]:
    return [dict(zip(FIELDS, (n, checked, JUDGING[0]), strict=True)) for n in PROMISED]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--dev", action="store_true", help="the seeds that settings were chosen on")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    seeds = DEV if arguments.dev else JUDGING
    store = CellStore(RESULTS / ("flags_dev.jsonl" if arguments.dev else "flags.jsonl"), FIELDS)
    promise = CellStore(RESULTS / "promises.jsonl", FIELDS)
    if not arguments.table:
        # One seed of all first, and what is promised between: the most telling, if time is short.
        for s in seeds:
            for m in CHECKED:
                cells = [dict(zip(FIELDS, (n, m, s), strict=True)) for n in SETS]
                store.run_missing(cells, run_cell, jobs=arguments.jobs)
                if (s, m) == (JUDGING[0], CHECKED[0]):
                    promise.run_missing(
                        promised(PROMISE_CHECKED[0]), run_promise, jobs=arguments.jobs
                    )
        if not arguments.dev:
            promise.run_missing(promised(PROMISE_CHECKED[1]), run_promise, jobs=arguments.jobs)
    if not arguments.dev:
        done = (
            [r for r in each.rows().values() if r["seed"] in JUDGING] for each in (store, promise)
        )
        text = tables(*done)
        (RESULTS / "flags.md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()
