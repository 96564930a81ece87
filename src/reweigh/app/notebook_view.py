"""A run as a notebook shows it: its figures, its candidates, its first suspects.

Everything that came from the user's files is escaped by the template.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ReweighError
from ..runs import RunSource, RunSummary, Suspect, TrainedRun
from ..tables import thumbnail
from ..templates import environment
from ..text import numeral

SUSPECTS, BARS, CELLS, TEXT = 6, 8, 4, 140
WIDE, TALL = 320, 96
ROWS = {"test": "test", "holdout": "held-out clean", "validation": "validation"}


@dataclass(frozen=True)
class ShownSuspect:
    """A suspect, and its row in a form that is short enough."""

    suspect: Suspect
    picture: str | None
    text: str


def notebook_view(run: TrainedRun) -> str | None:
    """The HTML; None where the run cannot tell, so that a notebook shows the plain form."""
    try:
        summary = run.summary()
        suspects = run.first_suspects(SUSPECTS)
    except ReweighError:
        return None
    page: str = (
        environment("reweigh.app", numeral=numeral)
        .get_template("notebook.html")
        .render(
            run=run.path.name, source=run.source, summary=summary, figure=described(summary),
            suspects=[_shown(run.source, suspect) for suspect in suspects],
            bars=summary.candidates[:BARS], more=max(0, len(summary.candidates) - BARS),
            line=_line(summary), wide=WIDE, tall=TALL,
        )
    )  # fmt: skip
    return page


def described(summary: RunSummary) -> str:
    """The figure of merit in words: "accuracy 0.94 ± 0.03 on 150 test rows"."""
    if summary.figure is None:
        return "nothing was kept for judging"
    about = "" if summary.interval is None else f" ± {numeral(summary.interval, 2)}"
    rows = ROWS.get(summary.judged_on, "checked (cross-validated)")
    figure = numeral(summary.figure, 3)
    return f"{summary.metric} {figure}{about} on {summary.judged_rows:,} {rows} rows"


def _shown(source: RunSource, suspect: Suspect) -> ShownSuspect:
    if source.kind == "images":
        return ShownSuspect(
            suspect, thumbnail(source.data, suspect.example, 64), _short(suspect.example)
        )
    if source.kind == "text":
        return ShownSuspect(suspect, None, _short(suspect.example))
    row = json.loads(suspect.example or "{}")
    cells = [f"{k}: {_rounded(v)}" for k, v in row.items() if k != source.target and v is not None]
    return ShownSuspect(suspect, None, _short(", ".join(cells[:CELLS])))


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.4g}" if len(cell) > 6 and "." in cell else cell
    except ValueError:
        return cell


def _short(text: str) -> str:
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def _line(summary: RunSummary) -> Sequence[tuple[float, float]]:
    """The reweighed network's accuracy, or loss, during training, as points of a drawing."""
    key = "test_accuracy" if summary.metric == "accuracy" else "test_loss"
    points = [p for p in summary.curves.get("reweigh", ()) if p.get(key) is not None]
    if len(points) < 2:
        return ()
    last = max(float(p["step"]) for p in points) or 1.0
    highest = 1.0 if key == "test_accuracy" else max(float(p[key]) for p in points) or 1.0
    return [
        (round(WIDE * p["step"] / last, 1), round(TALL * (1 - min(1.0, p[key] / highest)), 1))
        for p in points
    ]
