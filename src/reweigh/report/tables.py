"""Results as tables in the paper's order: one entry a method and a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .settings import titles
from .summary import Summary, summarise

if TYPE_CHECKING:
    from .results import Results

Json = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A number in percent; `paper` sets it apart from ours. An empty one is a result not there."""

    summary: Summary | None
    best: bool = False
    paper: bool = False


@dataclass(frozen=True)
class Line:
    """One method."""

    name: str
    method: str
    entries: list[Entry]


@dataclass(frozen=True)
class Table:
    """`groups` are titles with their lines; the title of the first may be empty."""

    caption: str
    head: list[str]
    groups: list[tuple[str, list[Line]]]


def tables(results: Results) -> list[Table]:
    """What the experiment's kind asks for."""
    if results.about["shows"] == "weights":
        return [_weights(results)]
    return [_accuracies(results)]


def _accuracies(results: Results) -> Table:
    """A line a method, a column a setting; in the tables of the paper, its own numbers beside."""
    errors = results.about["shows"] == "imbalance"
    targets = {t["method"]: t for t in results.about["targets"]}
    settings = results.settings
    columns = [
        {row["method"]: _summary(results, row["method"], setting, errors) for row in results.rows}
        for setting in settings
    ]
    best = [_best(column, errors) for column in columns]
    head = ["This run"] if len(settings) == 1 else titles(settings)
    groups: list[tuple[str, list[Line]]] = []
    for clean, title in ((False, ""), (True, results.about["clean_title"])):
        lines = []
        for row in results.rows:
            method = row["method"]
            if row["clean"] is not clean or not (
                method in targets or any(column[method] for column in columns)
            ):
                continue
            entries = [
                Entry(column[method], best=column[method] is not None and method == top)
                for column, top in zip(columns, best, strict=True)
            ]
            if targets:
                entries.append(_target(targets.get(method)))
            lines.append(Line(row["name"], method, entries))
        if lines:
            groups.append((title if groups else "", lines))
    unit = "Test error" if errors else "Test accuracy"
    return Table(f"{unit} in percent.", head + (["Paper"] if targets else []), groups)


def _target(target: Json | None) -> Entry:
    if target is None:
        return Entry(None, paper=True)
    return Entry(Summary(target["mean"], target["interval"], 0), paper=True)


def _best(column: dict[str, Summary | None], errors: bool) -> str | None:
    present = {method: s.mean for method, s in column.items() if s is not None}
    if len(present) < 2:
        return None
    return (min if errors else max)(present, key=lambda method: present[method])


def _summary(results: Results, method: str, setting: Json, errors: bool) -> Summary | None:
    values = [100 * line["metrics"]["test_accuracy"] for line in results.of(method, setting)]
    if not values:
        return None
    return summarise([100 - value for value in values] if errors else values)


def _weights(results: Results) -> Table:
    """Where the weight went, for both kinds of batches."""
    kinds = {"random": "Random batch", "classes": "Batches of one class"}
    numbers = {
        "wrong_labels": "wrong labels among all",
        "wrong_weight": "their share of the weight",
        "wrong_zero": "wrong labels with weight zero",
        "right_zero": "right labels with weight zero",
    }
    groups = []
    for kind, title in kinds.items():
        lines = []
        for number, name in numbers.items():
            entries = []
            for row in results.rows:
                values = [100 * x["metrics"][f"{kind}_{number}"] for x in results.of(row["method"])]
                if values:
                    entries.append(Entry(summarise(values)))
            lines.append(Line(name, "", entries))
        groups.append((title, lines))
    head = [row["name"] for row in results.rows if results.of(row["method"])]
    return Table("Shares in percent.", head, groups)
