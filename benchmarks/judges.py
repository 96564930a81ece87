"""Why is the safeguard as it is? Its parts, changed one at a time, on development settings and seeds.

    python benchmarks/judges.py --texts DIR     # runs what is missing, then writes results/stability/judges.md
    python benchmarks/judges.py --table         # only the table

    last, 100    the way is that from the last place, or from the mean of the last 100, roughly
    every sign   trust falls whenever k > 0, without evidence
    saved up     evidence may be negative: good ways count against later bad ones
    same way     the mean stays where it is when trust falls
    full pace    trust grows by 5% after every good step, however few of them are good
    present      the safeguard as it is

Settings are such that some rule is destroyed there or stops early; the seeds are among those that the
safeguard was developed on, so this shows why it is as it is and judges nothing: that is stability.py's.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stability
from cell_store import CellStore
from torch import Tensor

from reweigh.core import safeguard
from reweigh.core.safeguard import NextBatchJudge

OUT = Path(__file__).parents[1] / "results" / "stability"
SEEDS = (1, 2)


class Horizon(NextBatchJudge):
    """The mean looks back over about so many steps."""

    def __init__(self, steps: float) -> None:
        super().__init__()
        self._steps = steps

    def __call__(self, clean_loss: Tensor, *rest: Any) -> Tensor:
        t = float(self._state["step"]) + 1 if self._state else 1.0
        safeguard.LATEST = max(1.0, t / self._steps)  # min(1, LATEST / t) = max(1 / t, 1 / steps)
        try:
            return super().__call__(clean_loss, *rest)
        finally:
            safeguard.LATEST = 5


class EverySign(NextBatchJudge):
    """The last sign is all the evidence."""

    @staticmethod
    def _weighed(evidence: Tensor, news: Tensor) -> Tensor:
        return (evidence + news > 0).to(evidence)  # news are what is missing of the sign


class SavedUp(NextBatchJudge):
    """Evidence has no lower bound."""

    @staticmethod
    def _weighed(evidence: Tensor, news: Tensor) -> Tensor:
        return evidence + safeguard.RATE * news


class SameWay(NextBatchJudge):
    """Where trust falls, the mean moves no faster than elsewhere."""

    def __call__(self, *given: Any) -> Tensor:
        before = dict(self._state)
        factor = super().__call__(*given)
        if before and self._state["trust"] < before["trust"]:
            pace = min(1.0, safeguard.LATEST / float(self._state["step"]))
            self._state["mean"] = before["mean"] + pace * (self._state["place"] - before["mean"])
        return factor


class FullPace(NextBatchJudge):
    """Where trust grows, it grows by as much as it falls."""

    def __call__(self, *given: Any) -> Tensor:
        before = self._state.get("trust")
        factor = super().__call__(*given)
        if before is None or self._state["trust"] <= before:
            return factor
        self._state["trust"] = (before * math.exp(safeguard.RATE)).clamp(max=1.0)
        return self._state["trust"].to(factor)


JUDGES: dict[str, Callable[[], NextBatchJudge]] = {
    "last": lambda: Horizon(1), "100": lambda: Horizon(100), "every sign": EverySign, "saved up": SavedUp,
    "same way": SameWay, "full pace": FullPace, "present": NextBatchJudge,
}  # fmt: skip
METHODS = ("plain", "literal", *JUDGES)


def settings() -> list[dict[str, Any]]:
    def one(part: str, data: str, model: str, noise: str, *rest: Any) -> dict[str, Any]:
        return dict(zip(stability.FIELDS[:-2], (part, data, model, noise, *rest), strict=True))

    return [
        one("digits", "digits", "mlp", "uniform", "sgd", 0.1, 0.0, 50, 5, 1.0),
        one("digits", "digits", "mlp", "background", "sgd", 0.1, 0.0, 200, 2, 1.0),
        one("digits", "digits", "mlp", "uniform", "sgd", 0.3, 0.9, 50, 5, 1.0),
        one("digits", "digits", "mlp", "uniform", "sgd", 0.1, 0.9, 50, 2, 1.0),
        one("sampled", "digits", "mlp", "background", "sgd", 0.5, 0.9, 50, 20, 0.1),
        one("texts", "texts", "mlp", "automatic", "sgd", 0.5, 0.9, 100, 200, 0.1),
        one("texts", "texts", "mlp", "automatic", "sgd", 0.1, 0.9, 100, 200, 1.0),
        one("texts", "texts", "mlp", "automatic", "adamw", 0.01, 0.0, 100, 200, 1.0),
        one("mnist49", "mnist49", "lenet", "none", "sgd", 0.001, 0.9, 100, 5, 1.0),
    ]


def cells() -> list[dict[str, Any]]:
    grid = [(s, seed, m) for seed in SEEDS for s in settings() for m in METHODS]
    return [{**s, "seed": seed, "method": m} for s, seed, m in grid]


def attempt(cell: dict[str, Any]) -> dict[str, Any]:
    make = JUDGES.get(cell["method"])
    return stability.attempt(cell, make() if make else None)


def outdated(row: dict[str, Any]) -> bool:
    return row["method"] in JUDGES and row["rule"] != stability.provenance()["rule"]


def table(rows: dict[Any, dict[str, Any]]) -> str:
    lines = [
        "| data | labels | optimizer | lr | momentum | clean | drawn | seed | "
        + " | ".join(METHODS) + " |",
        "|" + "---|" * 8 + "---:|" * len(METHODS),
    ]  # fmt: skip
    fields = ("data", "noise", "optimizer", "lr", "momentum", "clean", "drawn", "seed")
    for cell in cells():
        if cell["method"] != METHODS[0]:
            continue
        found = [rows.get(stability.key({**cell, "method": m})) for m in METHODS]
        if all(found):
            values = [f"{100 * row['final']:.1f}" for row in found if row]
            names = [str(cell[field]) for field in fields]
            lines.append("| " + " | ".join([*names, *values]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="folder of the texts; left out without it")
    parser.add_argument("--table", action="store_true", help="only rewrite the table")
    arguments = parser.parse_args()
    store = CellStore(OUT / "judges.jsonl", stability.FIELDS)
    if not arguments.table:
        if arguments.texts:
            os.environ["REWEIGH_TEXTS"] = str(arguments.texts)
        wanted = [c for c in cells() if c["part"] != "texts" or "REWEIGH_TEXTS" in os.environ]
        store.run_missing(wanted, attempt, jobs=arguments.jobs, outdated=outdated)
    (OUT / "judges.md").write_text(table(store.rows()))
    print(table(store.rows()))


if __name__ == "__main__":
    main()
