"""Bring docs/own-data.md and its picture in line with what the commands and benchmarks gave.

python docs/own_data.py --run FOLDER   # FOLDER: where the tutorial's commands were run
python docs/own_data.py                # only the pictures and the tables of results/audit and results/real_data
python docs/own_data.py --check        # only say whether they are up to date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import real_data_block

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "own-data.md", ROOT / "docs" / "own-data.svg"
CELLS = ROOT / "results" / "audit" / "cells.jsonl"
NOISES = {"uniform_flip": "errors at random", "background_flip": "errors to one class"}
SCORES = {"ours": "reweigh audit", "ours_alone": "without --compare", "cleanlab": "cleanlab", "loss": "training loss", "aum": "area under margin"}  # fmt: skip
COLOURS = {
    "ours": "#2f7fd1",
    "ours_alone": "#7fb2e5",
    "cleanlab": "#d1632f",
    "loss": "#808080",
    "aum": "#a0a0a0",
}
DATA = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}


def cells() -> list[dict[str, Any]]:
    """Every finished cell of benchmarks/audit.py."""
    return [json.loads(line) for line in CELLS.read_text().splitlines()]


def values(data: str, noise: str, score: str) -> list[float]:
    """AUROC of each seed; cleanlab's best variant, as in the table of the benchmark."""
    return [
        max(v for k, v in cell["auroc"].items() if k == score or (score == "cleanlab" and k.startswith(score)))
        for cell in cells()
        if (cell["dataset"], cell["noise"]) == (data, noise)
    ]  # fmt: skip


def audit_block() -> str:
    """The table of AUROCs."""
    lines = ["| data | errors | seeds | " + " | ".join(SCORES.values()) + " |", "|---" * 8 + "|"]
    for data, name in DATA.items():
        for noise, what in NOISES.items():
            seeds = len(values(data, noise, "ours"))
            if not seeds:
                continue
            means = {score: float(np.mean(values(data, noise, score))) for score in SCORES}
            best = max(means.values())
            shown = [f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in means.values()]
            row = f"| {name} | {what.removeprefix('errors ')} | {seeds} | "
            lines.append(row + " | ".join(shown) + " |")
    lines += ["", "AUROC, mean over seeds, 40% of the labels wrong; intervals and average precision in "
              "[results/audit](../results/audit/table.md). cleanlab got the same network, the clean rows, and "
              "the best of four variants chosen knowing the truth."]  # fmt: skip
    return "\n".join(lines)


def draw() -> None:
    """A dot a data set and score: chance is 0.5."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "own-data", "svg.fonttype": "path", "font.size": 10})
    figure = Figure(figsize=(8, 3.1), layout="constrained")
    for axes, (noise, what) in zip(figure.subplots(1, 2, sharey=True), NOISES.items(), strict=True):
        for row, score in enumerate(reversed(SCORES)):
            for data, marker in zip(DATA, "osD", strict=True):
                found = values(data, noise, score)
                if not found:
                    continue
                label = DATA[data] if row == 0 and noise == "uniform_flip" else None
                axes.plot(
                    np.mean(found), row, marker, color=COLOURS[score], markersize=7, label=label
                )
        axes.set(
            title=what,
            xlim=(0.05, 1.03),
            xlabel="AUROC (0.5 is guessing)",
            ylim=(-0.6, len(SCORES) - 0.4),
        )
        axes.set_yticks(range(len(SCORES)), list(reversed(SCORES.values())))
        axes.axvline(0.5, color="#808080", linestyle="dotted", linewidth=1)
        axes.grid(axis="x", alpha=0.3)
        axes.title.set_color("#808080")
        axes.xaxis.label.set_color("#808080")
        axes.tick_params(colors="#808080")
        for spine in axes.spines.values():
            spine.set_color("#80808060")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, labelcolor="#808080")
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None})


def figures(run: Path) -> str:
    """What `reweigh train` printed at the end."""
    summary = json.loads((run / "summary.json").read_text())
    lines = ["| candidate | accuracy | balanced | macro-F1 |", "|---|---|---|---|"]
    for each in summary["candidates"]:
        accuracy = f"{each['accuracy']:.1%} ± {100 * each['interval']:.1f}"
        accuracy = f"**{accuracy}** (kept)" if each["chosen"] else accuracy
        lines.append(f"| {each['title']} | {accuracy} | {each['balanced_accuracy']:.1%} | {each['macro_f1']:.1%} |")  # fmt: skip
    lines += ["", summary["why_chosen"], ""]
    lines += [f"Reweighing the network gains {100 * c['gain']:+.1f} ± {100 * c['interval']:.1f} points over {c['name']}{' training' if c['name'] == 'plain' else ''}." for c in summary["comparison"]]  # fmt: skip
    lines += ["", f"{summary['suggestions']} of {summary['train_rows']} labels look wrong to the model."]  # fmt: skip
    return "\n".join(lines)


def looked(folder: Path) -> str:
    """How many of the rows looked at were wrong."""
    import pandas as pd

    confirmed = pd.read_csv(folder / "run" / "confirmed.csv")
    given = pd.read_csv(folder / "biopsies.csv")["diagnosis"]
    wrong = int((given[confirmed["index"]].to_numpy() != confirmed["label"]).sum())
    return f"{wrong} of the {len(confirmed)} rows were mislabelled."


def filled(page: str, name: str, block: str) -> str:
    """The page with one marked block replaced."""
    form = rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)"
    assert re.search(form, page, flags=re.DOTALL), name
    return re.sub(form, lambda m: f"{m[1]}{block}\n{m[2]}", page, flags=re.DOTALL)


def main() -> None:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    page = filled(before, "audit", audit_block())
    page = filled(page, "real data", real_data_block.block())
    if asked.check:
        sys.exit(page != before)
    if asked.run is not None:
        page = filled(page, "first run", figures(asked.run / "run"))
        page = filled(page, "look", looked(asked.run))
        page = filled(page, "second run", figures(asked.run / "run-2"))
    draw()
    real_data_block.draw()
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
