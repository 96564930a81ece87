"""The page of a results folder: the paper's tables and figures beside its numbers.

experiment.json + results.jsonl + cells/*.json  ->  report.html, figures/*.png, figures/*.pdf
"""

from collections import Counter
from pathlib import Path

from ..files import write_whole
from ..results import Results, read_results
from .figures import PaperFigure
from .page import render as render_page
from .paper_figures import figures
from .tables import ResultTable, tables


def write_report(folder: Path) -> Path:
    """Write `report.html`, and the figures as files, from what is in `folder`; the page's path."""
    results = read_results(folder)
    drawn = figures(results)
    page = folder / "report.html"
    files = folder / "figures"
    files.mkdir(exist_ok=True)
    for figure in drawn:
        for panel in figure.panels:
            panel.save(files)
    write_whole(page, render(results, tables(results), drawn))
    return page


def render(results: Results, shown_tables: list[ResultTable], drawn: list[PaperFigure]) -> str:
    """The page as text."""
    about = results.about
    seeds = Counter((line["method"], str(line["setting"])) for line in results.lines).values()
    published = " --as-published" if about["as_published"] else ""
    return render_page(
        "results.html",
        about=about,
        tables=shown_tables,
        figures=drawn,
        seeds=(min(seeds), max(seeds)),
        failures=results.failures,
        missing=len(results.missing),
        planned=len(about.get("grid", [])),
        sizes=results.details(results.lines[0])["sizes"],
        setup=about["setups"][0],
        settings=results.settings,
        command=f"reweigh reproduce {about['experiment']} --scale {about['scale']}{published}",
        versions=results.distinct("versions"),
        commits=results.distinct("commit"),
        hours=sum(line["seconds"] for line in results.lines) / 3600,
        cells=len(results.lines),
    )
