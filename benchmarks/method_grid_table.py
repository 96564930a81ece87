"""The table of `method_grid.py`: judging seeds and development seeds apart, setting by setting."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

FIELDS = ("data", "noise", "rate", "clean", "seed", "method")
PARTS = (("Judging seeds, run once", range(11, 20)), ("Development seeds", range(1, 10)))
Row = dict[str, Any]


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "# Variants of reweighing",
        "",
        "Test accuracy in percent at the last step, mean over seeds; in brackets with an average of the weights over the",
        "last tenth of the run (`Config(average=0.1)`). Made by `benchmarks/method_grid.py`, which says how; the same",
        "command runs what is missing.",
    ]
    for title, seeds in PARTS:
        part = [row for row in rows if row["seed"] in seeds]
        if part:
            lines += ["", f"## {title}", "", *_part(part)]
    return "\n".join(lines) + "\n"


def _part(rows: Sequence[Row]) -> list[str]:
    settings = list(dict.fromkeys(_setting(row) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds: dict[Any, list[int]] = {
        s: sorted(_common(rows, s)) for s in settings
    }  # with every method that the setting has
    lines = [
        "| data | noise | rate | clean per class | seeds | " + " | ".join(methods) + " |",
        "|---|---|---|---|---|" + "---:|" * len(methods),
    ]
    for setting in settings:
        cells = [_shown(_cells(rows, setting, m, seeds[setting])) for m in methods]
        named = ", ".join(map(str, seeds[setting]))
        lines.append(f"| {' | '.join(map(str, setting))} | {named} | {' | '.join(cells)} |")
    whole = [s for s in settings if all(_cells(rows, s, m, seeds[s]) for m in methods)]
    if whole:
        means = [_shown([c for s in whole for c in _cells(rows, s, m, seeds[s])]) for m in methods]
        lines.append(f"| mean of {len(whole)} settings | | | | | {' | '.join(means)} |")
    return lines


def _setting(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in FIELDS[:4])


def _common(rows: Sequence[Row], setting: tuple[Any, ...]) -> set[int]:
    by_method: dict[str, set[int]] = {}
    for row in rows:
        if _setting(row) == setting:
            by_method.setdefault(row["method"], set()).add(row["seed"])
    return set.intersection(*by_method.values())


def _cells(
    rows: Sequence[Row], setting: tuple[Any, ...], method: str, seeds: Sequence[int]
) -> list[Row]:
    return [
        r for r in rows
        if _setting(r) == setting and r["method"] == method and r["seed"] in seeds
    ]  # fmt: skip


def _shown(cells: Sequence[Row]) -> str:
    if not cells:
        return ""
    averaged = 100 * statistics.fmean(c["averaged_accuracy"] for c in cells)
    last = [c["test_accuracy"] for c in cells]
    own = "-" if None in last else f"{100 * statistics.fmean(last):.1f}"
    return f"{own} ({averaged:.1f})"
