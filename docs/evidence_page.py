"""The generated parts of docs/evidence.md: finished cells beside the paper's numbers, and what is missing.

`docs/refresh.py` puts them between the marks of the page. All numbers come from the folders under results/:
results/ID is the experiment ID at `small`, results/ID-medium at `medium`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCALES = ("medium", "small")
# Rows of the tables at `small` that this page repeats; docs/reproduce.md has all of them.
TELLING = (
    "uniform", "random", "clean_only", "uniform+ft", "weighted+ft", "reweigh_literal", "reweigh",
)  # fmt: skip


def folder_of(name: str, scale: str) -> Path:
    """The results folder of an experiment at a scale."""
    return ROOT / "results" / (name if scale == "small" else f"{name}-{scale}")


def command_of(name: str, scale: str) -> str:
    """What runs the cells that are missing there."""
    return f"`reweigh reproduce {name} --scale {scale} --out results/{folder_of(name, scale).name}`"


def finished(name: str, scale: str) -> Any:
    """The results of an experiment at a scale, or None."""
    from reweigh.results import LINES, read_results

    folder = folder_of(name, scale)
    return read_results(folder) if (folder / LINES).exists() else None


def counts(name: str, scale: str) -> tuple[int, int]:
    """Cells of the experiment's own grid: finished, and planned."""
    from reweigh.experiments import EXPERIMENTS, cells

    grid = {cell.key for cell in cells(EXPERIMENTS[name], scale)}
    results = finished(name, scale)
    return (0 if results is None else len(grid & _keys(results))), len(grid)


def _keys(results: Any) -> set[str]:
    from reweigh.results import cell_key

    return {cell_key(line) for line in results.lines}


def overview() -> str:
    """Every experiment, and how much of it has been run at each scale."""
    from reweigh.experiments import EXPERIMENTS

    lines = [
        "| experiment | of the paper | cells at `small` | cells at `medium` |",
        "|---|---|---|---|",
    ]
    for name, experiment in EXPERIMENTS.items():
        ran = ["{} of {}".format(*counts(name, scale)) for scale in ("small", "medium")]
        lines.append(f"| `{name}` | {experiment.paper} | " + " | ".join(ran) + " |")
    return "\n".join(lines)


def block(name: str) -> str:
    """The tables of an experiment, one for each scale at which a cell is finished."""
    parts = []
    for scale in SCALES:
        results = finished(name, scale)
        if results is not None:
            parts += [_tables(results, scale), *_pictures(results)]
            done, planned = counts(name, scale)
            where = f"[results/{folder_of(name, scale).name}](../results/{folder_of(name, scale).name}/results.jsonl)"
            more = "" if done == planned else f"; {command_of(name, scale)} runs the others"
            parts.append(f"{done} of {planned} cells, in {where}{more}.")
    if not parts:
        return f"No cell has been run; {command_of(name, SCALES[0])} runs them."
    return "\n\n".join(parts)


def _tables(results: Any, scale: str) -> str:
    from reweigh.report.tables import tables

    shown = []
    for table in tables(results):
        caption = f"At `{scale}`. {table.caption.rstrip('.')}"
        head = ["here" if name == "This run" else name for name in table.head]
        lines = [f"| {caption} | " + " | ".join(head) + " |", "|---" * (1 + len(head)) + "|"]
        for title, group in table.groups:
            ran = [line for line in group if _belongs(line, results, scale)]
            lines += [f"| *{title}* |" + " |" * len(head)] if title and ran else []
            for line in ran:
                cells = [entry(e.summary, bold=e.best) for e in line.entries]
                lines.append(f"| {line.name} | " + " | ".join(cells) + " |")
        shown.append("\n".join(lines))
    return "\n\n".join(shown)


def _pictures(results: Any) -> list[str]:
    """The experiment's figures, two beside each other, each under its title, and what they show."""
    from reweigh.report.paper_figures import figures

    shown = []
    for figure in figures(results):
        drawn = [
            (panel.title, f"![{panel.text}](../{path.relative_to(ROOT).as_posix()})")
            for panel in figure.panels
            if (path := results.folder / "figures" / f"{panel.name}.png").exists()
        ]
        for k in range(0, len(drawn), 2):
            titles, images = zip(*drawn[k : k + 2], strict=True)
            rows = [titles, ("---",) * len(images), images]
            table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
            shown.append(table if any(titles) else images[0])
        shown += [figure.caption] if drawn else []
    return shown


def _belongs(line: Any, results: Any, scale: str) -> bool:
    """Whether a line has numbers, and is not one of many that docs/reproduce.md has."""
    ran = any(e.summary and not e.paper for e in line.entries)
    many = scale == "small" and results.about["shows"] == "table"
    return ran and (not many or line.method in TELLING)


def entry(summary: Any, *, bold: bool = False) -> str:
    """A number with its interval, if there is one."""
    if summary is None:
        return ""
    interval = "" if summary.interval is None else f" ± {summary.interval:.1f}"
    return f"**{summary.mean:.1f}{interval}**" if bold else f"{summary.mean:.1f}{interval}"


# For the README: an experiment, one of its settings, and what is wrong there.
SHOWN = (
    (
        "human-noise",
        {"labels": "worst", "clean": 100},
        "CIFAR-10, labels that people gave, 40% wrong, 10 checked a class",
    ),
    ("human-noise", {"labels": "worst", "clean": 1000}, "the same, 100 checked a class"),
    ("cifar10-background", {}, "CIFAR-10, 40% flipped to one class, 10 checked a class"),
    ("cifar10-uniform", {}, "CIFAR-10, 40% flipped to any class, 1,000 checked"),
    ("mnist-imbalance", {"share": 0.995}, "MNIST, 200 nines to one four, 10 checked"),
)
COLUMNS = {
    "uniform": "plain",
    "random": "random weights",
    "uniform+ft": "fine-tuned on the clean images",
    "reweigh_literal": "reweighed by the paper's rule",
    "reweigh": "the default, safeguarded",
}


def readme_block() -> str:
    """Plain training, fine-tuning and reweighing on images, at the largest scale that has them."""
    head = ["test accuracy in %", "scale", *COLUMNS.values()]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, wanted, title in SHOWN:
        for scale in SCALES:
            values = _compared(name, scale, wanted)
            if values:
                lines.append(f"| {title} | {scale} | " + " | ".join(values) + " |")
                break
    return "\n".join(lines)


def _compared(name: str, scale: str, wanted: dict[str, Any]) -> list[str] | None:
    """An entry a column, or None where plain training or reweighing has not been run."""
    from reweigh.report.tables import summary_in_percent

    results = finished(name, scale)
    settings = (
        [] if results is None else [s for s in results.settings if s.items() >= wanted.items()]
    )
    if not settings:
        return None
    found = {m: summary_in_percent(results, m, settings[0], False) for m in COLUMNS}
    if found["uniform"] is None or found["reweigh_literal"] is None:
        return None
    top = max(s.mean for s in found.values() if s)
    return [entry(s, bold=s is not None and s.mean == top) for s in found.values()]


def audit_block() -> str:
    """Finding the labels that people got wrong: ours, the loss, cleanlab and AUM, from results/audit."""
    from reweigh.intervals import summarise

    text = (ROOT / "results/audit/cells.jsonl").read_text()
    cells = [c for c in map(json.loads, text.splitlines()) if c["dataset"] == "cifar10n"]
    if not cells:
        return "Not run yet: `python benchmarks/audit.py --only cifar10n`."
    names = {
        "ours": "`reweigh audit`, after `reweigh train --compare`",
        "ours_alone": "`reweigh audit`, of the reweighed run alone",
        "loss": "mean loss of plain training",
        "cleanlab": "cleanlab, the best of four variants, chosen knowing the truth",
        "aum": "area under the margin of plain training",
    }
    lines = [
        f"| {len(cells)} seeds; wrong labels ranked above right ones, in % | AUROC |",
        "|---|---|",
    ]
    for key, name in names.items():
        values = [
            100
            * max(
                v
                for k, v in c["auroc"].items()
                if k == key or (key == "cleanlab" and k.startswith(key))
            )
            for c in cells
        ]
        lines.append(f"| {name} | {entry(summarise(values))} |")
    wrong = [100 * c["wrong"] / c["train"] for c in cells]
    lines += [
        "",
        f"{cells[0]['train']:,} train images, {entry(summarise(wrong))}% of whose labels are wrong, "
        f"{cells[0]['clean']} clean ones; every method trains the same small network for "
        f"{cells[0]['steps']} steps. `python benchmarks/audit.py --only cifar10n` "
        "([results/audit](../results/audit/table.md)).",
    ]
    return "\n".join(lines)


def scale_block() -> str:
    """What plain training reaches at `medium`, from results/medium-scale."""
    table = ROOT / "results/medium-scale/table.md"
    if not table.exists():
        return "Not measured yet, so that it is open whether it meets them."
    return table.read_text().partition("\n\n")[2].strip()
