"""The table of `real_data.py`: reweigh train beside simple baselines, every miss, and what a run promises of itself.

promised less found    what a run expects of the model that it keeps, less its accuracy on unseen rows, in points
interval of the mean   95%, Student's t over draws of rows: a data set and a seed, whose cells share rows
interval stated        half the 95% interval that the run gives; of cells that did not keep it, Agresti and Coull's
                       for as many rows as were checked
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from real_data_sets import KINDS

SIMPLE = ("lr_checked", "lr_all", "lr_balanced", "gb_checked", "gb_all", "network", "cleanlab")
Z = 1.96


def table(rows: dict, *, planned: int) -> str:
    """Means over seeds, and every miss. The best simple one is that with the best mean over seeds."""
    frame = pd.DataFrame(rows.values())
    if frame.empty:
        return "no cells yet\n"
    frame = frame.sort_values(["dataset", "checked", "seed"])
    seeds = ", ".join(map(str, sorted(frame["seed"].unique())))
    lines = [
        "# `reweigh train` beside simple baselines, on realistic wrong labels", "",
        f"{len(frame)} cells of {planned}, seeds {seeds}; accuracy on unseen rows, mean over "
        "seeds. See the head of `benchmarks/real_data.py`.", "",
        "| data | checked | seeds | wrong | reweigh train | " + " | ".join(SIMPLE)
        + " | ahead of the best simple | code |",
        "|---|---|---|---|---|" + "---|" * len(SIMPLE) + "---|---|",
    ]  # fmt: skip
    misses, leads, own = [], [], []
    for (name, checked), group in frame.groupby(["dataset", "checked"]):
        ours = group["reweigh_train"].mean()
        theirs = pd.DataFrame(list(group["simple"])).mean()
        lead = 100 * (ours - theirs.max())
        shown = [f"{theirs[s]:.3f}" if s in theirs else "" for s in SIMPLE]
        wrong = f"{group['wrong'].mean():.0%}"
        lines.append(
            f"| {name} | {checked} | {len(group)} | {wrong} | {ours:.3f} | " + " | ".join(shown)
            + f" | {lead:+.1f} | {_codes(group)} |"
        )  # fmt: skip
        leads.append(lead)
        own.append(100 * (ours - theirs))
        if lead < -1:
            kept = ", ".join(sorted(set(group["chosen"])))
            misses.append(
                f"- {name}, {checked} checked, {len(group)} seeds: {lead:+.1f} points beside {theirs.idxmax()} (kept: {kept})"
            )
    ahead = sum(lead > 0 for lead in leads)
    each = pd.DataFrame(own).mean()
    lines += [
        "", "`code` is the commit that ran the cells of a line (how many of them, where there are several).",
        "", f"Ahead of the best simple one in {ahead} of {len(leads)} lines, by {np.mean(leads):+.1f} points in the mean of all. "
        "Beside each simple one alone: " + ", ".join(f"{s} {each[s]:+.1f}" for s in SIMPLE if s in each) + ".",
        "", "Over one point behind:" if misses else "Nowhere over one point behind in a mean over seeds.", "", *misses, "",
        _single(frame), "", *_promises(frame), "", _auroc(frame), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _codes(group: pd.DataFrame) -> str:
    counts = group["commit"].str[:7].value_counts()
    if len(counts) == 1:
        return str(counts.index[0])
    return ", ".join(f"{code} ({count})" for code, count in counts.items())


def _single(frame: pd.DataFrame) -> str:
    """The cells in which the best of the simple ones, chosen by the unseen rows, is over a point ahead."""
    best = frame["simple"].map(lambda each: max(each.values()))
    behind = frame[100 * (frame["reweigh_train"] - best) < -1]
    named = [
        f"{row.dataset} {row.checked} seed {row.seed} ({100 * (row.reweigh_train - max(row.simple.values())):+.1f})"
        for row in behind.itertuples()
    ]
    listed = ": " + ", ".join(named) if named else ""
    return f"Single cells over one point behind their best simple one: {len(behind)} of {len(frame)}{listed}."


def _promises(frame: pd.DataFrame) -> Iterator[str]:
    """What a run says of itself, beside what is so."""
    frame = frame.assign(gap=frame["expected"] - frame["reweigh_train"], half=_stated(frame))
    kind = frame["dataset"].map(KINDS)
    yield "What a run promises of itself, in points. How this is reckoned: the head of `benchmarks/real_data_table.py`."
    yield ""
    yield "| cells | | promised less found | interval of the mean | spread | interval stated | found inside it |"
    yield "|---|---|---|---|---|---|---|"
    yield _promise("all", frame)
    for name in ("table", "text", "images"):
        yield _promise(f"{name}s" if name != "images" else name, frame[kind == name])
    for name, few in (("up to 50", (0, 50)), ("100", (51, 100)), ("200", (101, 200))):
        yield _promise(f"{name} checked rows", frame[frame["checked"].between(*few)])
    for name, group in frame.groupby("dataset"):
        yield _promise(str(name), group)
    yield ""
    yield (
        "The accuracy that was found has an error of its own, from a few hundred unseen rows (up to 2 points), so "
        "somewhat fewer than 95% of promises can be met."
    )


def _stated(frame: pd.DataFrame) -> pd.Series:
    rows, right = frame["checked"] + Z**2, frame["expected"] * frame["checked"] + Z**2 / 2
    usual = Z * np.sqrt(right / rows * (1 - right / rows) / rows)
    kept = frame["interval"] if "interval" in frame else pd.Series(np.nan, index=frame.index)
    return kept.astype(float).fillna(usual)


def _promise(name: str, frame: pd.DataFrame) -> str:
    if frame.empty:
        return f"| {name} | 0 |  |  |  |  |  |"
    draws = frame.groupby(["dataset", "seed"])["gap"].mean()
    about = ""
    if len(draws) > 1:
        from scipy.special import stdtrit

        half = stdtrit(len(draws) - 1, 0.975) * draws.std() / len(draws) ** 0.5
        about = f"± {100 * half:.1f}"
    inside = (frame["gap"].abs() <= frame["half"]).mean()
    spread = "" if len(frame) < 2 else f"{100 * frame['gap'].std():.1f}"
    return (
        f"| {name} | {len(frame)} | {100 * draws.mean():+.1f} | {about} | {spread} | "
        f"± {100 * frame['half'].mean():.1f} | {inside:.0%} |"
    )


def _auroc(frame: pd.DataFrame) -> str:
    auroc = pd.DataFrame(list(frame["auroc"])).mean()
    found = ", ".join(f"{name} {value:.3f}" for name, value in auroc.items())
    return f"AUROC of the audit's evidence for wrong labels: {found}."
