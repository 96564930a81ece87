"""The table of `method_grid.py`: data by data, then setting by setting."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

FIELDS = ("data", "noise", "rate", "clean", "seed", "method")
DEFAULT, CLOSE = "reweigh", 0.01
Row = dict[str, Any]
Setting = tuple[Any, ...]


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    settings = sorted({_setting(row) for row in rows}, key=lambda s: (s[0], s[1], s[3], s[2]))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    last, averaged = (
        {(s, m): _mean(rows, s, m, which) for s in settings for m in methods}
        for which in ("test_accuracy", "averaged_accuracy")
    )
    seeds = ", ".join(map(str, sorted({row["seed"] for row in rows})))
    return "\n".join([
        "# Variants of reweighing",
        "",
        f"Test accuracy in percent at the last step, mean over seeds {seeds}. Made by `benchmarks/method_grid.py`, which says",
        "how; the same command runs what is missing. Level: a mean at most a point under the other.",
        "",
        "## Data by data",
        "",
        *_summary(settings, methods, last, averaged),
        "",
        "## Setting by setting",
        "",
        _line("data", "noise", "rate", "clean per class", *methods),
        "|---|---|---|---|" + "---:|" * len(methods),
        *(_line(*s, *(f"{100 * last[s, m]:.1f}" for m in methods)) for s in settings),
        "",
    ])  # fmt: skip


def _summary(
    settings: Sequence[Setting], methods: Sequence[str], last: Any, averaged: Any
) -> list[str]:
    lines = [_line("", "settings", *methods), "|---|---:|" + "---:|" * len(methods)]
    groups = sorted({(s[0], s[1]) for s in settings})
    for group in groups:
        mine = [s for s in settings if s[:2] == group]
        means = [statistics.fmean(last[s, m] for s in mine) for m in methods]
        best = max(means)
        shown = [f"**{100 * x:.1f}**" if x == best else f"{100 * x:.1f}" for x in means]
        lines.append(_line(", ".join(group), str(len(mine)), *shown))
    count = str(len(settings))

    def mean(accuracy: Any) -> list[str]:
        return [f"{100 * statistics.fmean(accuracy[s, m] for s in settings):.1f}" for m in methods]

    def over(first: Any, second: Any) -> list[str]:
        """How often a method is ahead by more than what is level."""
        return [str(sum(first(s, m) - second(s, m) > CLOSE for s in settings)) for m in methods]

    def own(s: Setting, m: str) -> float:
        return float(last[s, m])

    def default(s: Setting, _: str) -> float:
        return float(last[s, DEFAULT])

    return [
        *lines,
        _line("mean of all", count, *mean(last)),
        _line("the same, weights averaged over the last tenth", count, *mean(averaged)),
        _line(f"ahead of `{DEFAULT}` by over a point", count, *over(own, default)),
        _line(f"behind `{DEFAULT}` by over a point", count, *over(default, own)),
    ]


def _line(*cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _setting(row: Row) -> Setting:
    return tuple(row[name] for name in FIELDS[:4])


def _mean(rows: Sequence[Row], setting: Setting, method: str, which: str) -> float:
    return statistics.fmean(
        row[which] for row in rows if _setting(row) == setting and row["method"] == method
    )
