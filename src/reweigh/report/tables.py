"""Results as tables in the paper's order: one entry per method and setting."""

from dataclasses import dataclass
from typing import Any

from ..intervals import Summary, summarise
from ..results import Json, Results

NOISES = {"uniform": "any other class", "background": "one class"}


def titles(settings: list[Json]) -> list[str]:
    """Each setting in the reader's words: only the variables in which they differ."""
    varying = [
        name
        for name in ("labels", "noise", "rate", "share", "clean")
        if len({setting.get(name) for setting in settings}) > 1
    ]
    return [" ".join(_words(name, setting[name]) for name in varying) for setting in settings]


def _words(name: str, value: Any) -> str:
    if name in ("share", "rate"):
        return f"{100 * value:g}%"
    if name == "noise":
        return NOISES.get(value, str(value))
    if name == "clean":
        return f"{value:,} clean"
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class TableEntry:
    """A number in percent; `paper` sets it apart from ours. An empty one: no result."""

    summary: Summary | None
    best: bool = False
    paper: bool = False


@dataclass(frozen=True)
class TableLine:
    """One method."""

    name: str
    method: str
    entries: list[TableEntry]


@dataclass(frozen=True)
class ResultTable:
    """`groups` are titles with their lines; the title of the first may be empty."""

    caption: str
    head: list[str]
    groups: list[tuple[str, list[TableLine]]]


def tables(results: Results) -> list[ResultTable]:
    """What the experiment's kind asks for."""
    shows = results.about["shows"]
    if shows == "weights":
        return [_weights(results)]
    return [_accuracies(results), *([_audits(results)] if shows == "human" else [])]


def _accuracies(results: Results) -> ResultTable:
    """One line per method, one column per setting; in tables of the paper, its numbers beside ours."""
    errors = results.about["shows"] == "imbalance"
    targets = {t["method"]: t for t in results.about["targets"]}
    settings = results.settings
    columns = [
        {
            row["method"]: summary_in_percent(results, row["method"], setting, errors)
            for row in results.rows
        }
        for setting in settings
    ]
    best = [_best(column, errors) for column in columns]
    head = ["This run"] if len(settings) == 1 else titles(settings)
    groups: list[tuple[str, list[TableLine]]] = []
    for clean, title in ((False, ""), (True, results.about["clean_title"])):
        lines = []
        for row in results.rows:
            method = row["method"]
            if row["clean"] is not clean or not (
                method in targets or any(column[method] for column in columns)
            ):
                continue
            entries = [
                TableEntry(column[method], best=column[method] is not None and method == top)
                for column, top in zip(columns, best, strict=True)
            ]
            if targets:
                paper = targets.get(method)
                number = Summary(paper["mean"], paper["interval"], 0) if paper else None
                entries.append(TableEntry(number, paper=True))
            lines.append(TableLine(row["name"], method, entries))
        if lines:
            groups.append((title if groups else "", lines))
    unit = "Test error" if errors else "Test accuracy"
    return ResultTable(f"{unit} in percent.", head + (["Paper"] if targets else []), groups)


def _best(column: dict[str, Summary | None], errors: bool) -> str | None:
    present = {method: s.mean for method, s in column.items() if s is not None}
    if len(present) < 2:
        return None
    return (min if errors else max)(present, key=lambda method: present[method])


def summary_in_percent(
    results: Results, method: str, setting: Json, errors: bool
) -> Summary | None:
    """Test accuracy, or error, in percent; None without a result."""
    values = [100 * line["metrics"]["test_accuracy"] for line in results.of(method, setting)]
    if not values:
        return None
    return summarise([100 - value for value in values] if errors else values)


def _weights(results: Results) -> ResultTable:
    """Where the weight went, for both kinds of batches."""
    kinds = {"random": "Random batch", "classes": "Batches of one class"}
    numbers = {
        "wrong_labels": "wrong labels among all",
        "wrong_weight": "their share of the weight",
        "wrong_zero": "wrong labels with weight zero",
        "right_zero": "right labels with weight zero",
    }
    rows = [(row["name"], results.of(row["method"])) for row in results.rows]
    columns = [(name, [line["metrics"] for line in mine]) for name, mine in rows if mine]
    groups = []
    for kind, title in kinds.items():
        lines = []
        for number, name in numbers.items():
            values = [[100 * m[f"{kind}_{number}"] for m in metrics] for _, metrics in columns]
            lines.append(TableLine(name, "", [TableEntry(summarise(v)) for v in values]))
        groups.append((title, lines))
    return ResultTable("Shares in percent.", [name for name, _ in columns], groups)


def _audits(results: Results) -> ResultTable:
    """How well each run finds the wrong train labels: by the audit, and by the loss alone."""
    kinds = {
        "audit_auroc": "Ranked as `reweigh audit` does",
        "loss_auroc": "Ranked by the mean loss of the run",
    }
    settings = results.settings
    groups = []
    for number, title in kinds.items():
        lines = []
        for row in results.rows:
            of_setting = [
                [100 * m[number] for m in _metrics(results, row["method"], s) if number in m]
                for s in settings
            ]
            if any(of_setting):
                entries = [TableEntry(summarise(v) if v else None) for v in of_setting]
                lines.append(TableLine(row["name"], row["method"], entries))
        groups.append((title, lines))
    head = ["This run"] if len(settings) == 1 else titles(settings)
    return ResultTable(
        "AUROC of finding the wrong train labels, times 100; 50 is guessing.", head, groups
    )


def _metrics(results: Results, method: str, setting: Json) -> list[Json]:
    return [line["metrics"] for line in results.of(method, setting)]
