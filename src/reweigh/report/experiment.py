"""The page of a results folder: the paper's tables and figures beside its numbers.

experiment.json + results.jsonl + cells/*.json  ->  report.html, figures/*.png, figures/*.pdf
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..files import write_whole
from ..results import Results, read_results
from .page import render as render_page
from .paper_figures import Figure, figures
from .tables import ResultTable, tables


def write_report(folder: Path) -> Path:
    """Write `report.html`, and the figures as files, from what is in `folder`; the page's path."""
    results = read_results(folder)
    drawn = figures(results)
    page = folder / "report.html"
    _save_figures(folder / "figures", drawn)
    write_whole(page, render(results, tables(results), drawn))
    return page


def render(results: Results, shown_tables: list[ResultTable], drawn: list[Figure]) -> str:
    """The page as text."""
    about = results.about
    command = ["reweigh reproduce", about["experiment"], "--scale", about["scale"]]
    command += ["--as-published"] if about["as_published"] else []
    return render_page(
        "results.html",
        about=about,
        tables=shown_tables,
        figures=drawn,
        seeds=_seeds(results),
        failures=results.failures,
        missing=len(results.missing),
        planned=len(about.get("grid", [])),
        sizes=results.details(results.lines[0])["sizes"],
        setup=about["setups"][0],
        settings=results.settings,
        command=" ".join(command),
        versions=_distinct(results, "versions"),
        commits=_distinct(results, "commit"),
        hours=sum(line["seconds"] for line in results.lines) / 3600,
        cells=len(results.lines),
    )


def _seeds(results: Results) -> tuple[int, int]:
    """The least and the greatest number of seeds of a method and a setting."""
    counts = [
        len(results.of(row["method"], setting))
        for row in results.rows
        for setting in results.settings
        if results.of(row["method"], setting)
    ]
    return min(counts), max(counts)


def _distinct(results: Results, name: str) -> list[Any]:
    values: list[Any] = []
    for line in results.lines:
        if line[name] not in values:
            values.append(line[name])
    return values


def _save_figures(folder: Path, drawn: list[Figure]) -> None:
    folder.mkdir(exist_ok=True)
    for figure in drawn:
        for panel in figure.panels:
            panel.save(folder)
