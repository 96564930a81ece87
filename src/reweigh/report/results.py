"""A results folder, read for its report.

experiment.json      which experiment, the paper's numbers, every setup
results.jsonl        one line per finished cell
failures.jsonl       one line per cell that failed; absent if none
cells/KEY.json       what the figures need of a cell
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError

Json = dict[str, Any]

ABOUT = ("experiment", "scale", "as_published", "title", "shows", "rows", "targets", "setups")
NEEDED = {"experiment", "method", "setting", "seed", "metrics", "seconds", "versions", "commit"}


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
        found = [line["setting"] for line in self.lines]
        unique: list[Json] = []
        for setting in [s for s in known if s in found] + found:
            if setting not in unique:
                unique.append(setting)
        return unique

    @property
    def rows(self) -> list[Json]:
        """The experiment's rows, then methods that somebody has added."""
        rows: list[Json] = list(self.about["rows"])
        known = {row["method"] for row in rows}
        for line in self.lines:
            if line["method"] not in known:
                known.add(line["method"])
                rows.append({"method": line["method"], "name": line["method"], "clean": True})
        return rows

    def of(self, method: str, setting: Json | None = None) -> list[Json]:
        """The lines of a method, by seed."""
        mine = [
            line
            for line in self.lines
            if line["method"] == method and setting in (None, line["setting"])
        ]
        return sorted(mine, key=lambda line: int(line["seed"]))

    @property
    def missing(self) -> list[str]:
        """Cells of the experiment's own grid that were neither finished nor given up."""
        met = {_key(line) for line in [*self.lines, *self.failures]}
        return [key for key in self.about.get("grid", []) if key not in met]

    def details(self, line: Json) -> Json:
        """The file beside the line."""
        path = self.folder / str(line.get("details"))
        try:
            found: Json = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise DataError(
                f"{path} cannot be read; expected what `reweigh reproduce` wrote beside its line: "
                f"remove the line of {line['method']} seed {line['seed']} and run the cell again"
            ) from None
        return found


def _key(line: Json) -> str:
    setting = (f"{name}={value}" for name, value in line["setting"].items())
    return " ".join([line["method"], *setting, f"seed={line['seed']}"])


def read_results(folder: Path) -> Results:
    """What `reweigh reproduce` wrote, or an error that says what is the matter with it."""
    about = _read(folder / "experiment.json")
    lines = _lines(folder / "results.jsonl")
    for number, line in enumerate(lines, start=1):
        lacking = NEEDED - line.keys()
        if lacking:
            raise DataError(
                f"line {number} of {folder / 'results.jsonl'} lacks {', '.join(sorted(lacking))}; "
                "expected a result of `reweigh reproduce`"
            )
        if line["experiment"] != about["experiment"]:
            raise DataError(
                f"line {number} of {folder / 'results.jsonl'} is of {line['experiment']}, but the "
                f"folder is of {about['experiment']}; results of experiments do not mix"
            )
    if not lines:
        raise DataError(f"{folder} has no finished cell yet; let `reweigh reproduce` finish one")
    failures = folder / "failures.jsonl"
    return Results(folder, about, lines, _lines(failures) if failures.exists() else [])


def _read(path: Path) -> Json:
    try:
        found: Json = {"note": "", "claims": [], **json.loads(path.read_text(encoding="utf-8"))}
        lacking = [name for name in ABOUT if name not in found]
        if lacking:
            raise KeyError(lacking)
    except FileNotFoundError:
        raise DataError(f"there is no {path}; expected a folder of `reweigh reproduce`") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} cannot be read; expected what `reweigh reproduce` wrote") from None
    return found


def _lines(path: Path) -> list[Json]:
    """Every whole line; a last one without its end was cut by a kill."""
    text = path.read_text(encoding="utf-8")
    found = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise DataError(f"line {number} of {path} is not JSON; remove it") from None
    return found
