"""The results folder of an experiment: its files, and how they are read. Needs no torch.

    experiment.json     which experiment, the paper's numbers, every setup; a digest of the setups
    results.jsonl       one line per finished cell
    failures.jsonl      one line per cell that failed the last time it was tried; absent if none
    cells/KEY.json      what the figures need of a cell: curve, confusion matrix, weights

`experiments` writes it, `report` reads it. A line is appended by one write: it is complete or, after
a kill, cut at the end of the file.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DataError

Json = dict[str, Any]

DESCRIPTION, DETAILS = "experiment.json", "cells"
LINES, FAILURES = "results.jsonl", "failures.jsonl"
ABOUT = {"experiment", "scale", "as_published", "title", "shows", "rows", "targets", "setups"}
KEY = {"method", "setting", "seed"}
NEEDED = {"experiment", *KEY, "metrics", "seconds", "versions", "commit"}


def cell_key(line: Json) -> str:
    """The name of a line's cell: "uniform+ft share=0.98 seed=0"."""
    setting = (f"{name}={value}" for name, value in line["setting"].items())
    return " ".join([line["method"], *setting, f"seed={line['seed']}"])


def read_lines(path: Path, *, needed: Collection[str] = KEY) -> list[Json]:
    """Every complete line of a file of results, each with the `needed` entries; [] without a file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = []
    for number, part in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            line = json.loads(part)
            lacking = set(needed) - line.keys()
        except (ValueError, AttributeError):
            raise DataError(
                f"line {number} of {path} is no result; expected what `reweigh reproduce` writes: "
                "remove the line, and its cell runs again"
            ) from None
        if lacking:
            raise DataError(
                f"line {number} of {path} lacks {', '.join(sorted(lacking))}; "
                "expected a result of `reweigh reproduce`"
            )
        lines.append(line)
    return lines


@dataclass(frozen=True)
class Results:
    """What a results folder holds; `details(line)` reads what the figures need of a cell."""

    folder: Path
    about: Json
    lines: list[Json]
    failures: list[Json]

    @property
    def settings(self) -> list[Json]:
        """Every setting there are results of, in the experiment's order where that is known."""
        known = [setup["setting"] for setup in self.about["setups"]]
        finished = self.distinct("setting")
        ordered = [s for k, s in enumerate(known) if s in finished and s not in known[:k]]
        return ordered + [s for s in finished if s not in ordered]

    def distinct(self, name: str) -> list[Any]:
        """The different values that the lines have under `name`, in the order of the lines."""
        values: list[Any] = []
        for line in self.lines:
            if line[name] not in values:
                values.append(line[name])
        return values

    @property
    def rows(self) -> list[Json]:
        """The experiment's rows, then methods that somebody has added."""
        known = [row["method"] for row in self.about["rows"]]
        added = [method for method in self.distinct("method") if method not in known]
        return [*self.about["rows"], *({"method": m, "name": m, "clean": True} for m in added)]

    def of(self, method: str, setting: Json | None = None) -> list[Json]:
        """The lines of a method, by seed."""
        mine = [x for x in self.lines if x["method"] == method and setting in (None, x["setting"])]
        return sorted(mine, key=lambda line: int(line["seed"]))

    @property
    def missing(self) -> list[str]:
        """Cells of the experiment's own grid that were neither finished nor given up."""
        met = {cell_key(line) for line in [*self.lines, *self.failures]}
        return [key for key in self.about.get("grid", []) if key not in met]

    def details(self, line: Json) -> Json:
        """The file beside the line."""
        path = self.folder / str(line.get("details"))
        try:
            details: Json = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise DataError(
                f"{path} cannot be read; expected what `reweigh reproduce` wrote beside its line: "
                f"remove the line of {line['method']} seed {line['seed']} and run the cell again"
            ) from None
        return details


def read_results(folder: Path) -> Results:
    """What `reweigh reproduce` wrote, or an error that says what is the matter with it."""
    about = _read_about(folder / DESCRIPTION)
    lines = read_lines(folder / LINES, needed=NEEDED)
    for number, line in enumerate(lines, start=1):
        if line["experiment"] != about["experiment"]:
            raise DataError(
                f"line {number} of {folder / LINES} is of {line['experiment']}, but the "
                f"folder is of {about['experiment']}; results of experiments do not mix"
            )
    if not lines:
        raise DataError(f"{folder} has no finished cell yet; let `reweigh reproduce` finish one")
    return Results(folder, about, lines, read_lines(folder / FAILURES))


def _read_about(path: Path) -> Json:
    try:
        about: Json = {"note": "", "claims": [], **json.loads(path.read_text(encoding="utf-8"))}
        if not about.keys() >= ABOUT:
            raise KeyError
    except FileNotFoundError:
        raise DataError(f"there is no {path}; expected a folder of `reweigh reproduce`") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} cannot be read; expected what `reweigh reproduce` wrote") from None
    return about
