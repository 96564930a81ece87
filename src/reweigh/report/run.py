"""The page of a run on a user's own data: its folder in, one self-contained `report.html` out.

Everything that came from the user's files (labels, cells, texts, names) is escaped by the template;
pictures are decoded and drawn anew, never copied.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import write_whole
from ..results import Json
from ..runs import RunFile, RunSource, RunSummary, Suspect, Voice, open_run
from ..tables import thumbnail
from .figures import MUTED, OURS, PLAIN, panel
from .page import render as render_page

VOICES, HEARD = 2, 120
SHOWN, CELLS, TEXT = {"images": 24, "text": 12, "table": 12}, 10, 600
MOST_SOURCES = 25
NAMES = {"reweigh": "reweighed", "uniform": "plain", "random": "random weights"}
COLOURS = {"reweigh": OURS, "uniform": PLAIN, "random": MUTED}
LINES = {"reweigh": "solid", "uniform": (0, (4, 2)), "random": "dotted"}


def write_report(folder: Path) -> Path:
    """Write `report.html` into a finished run folder; its path."""
    page = folder / RunFile.REPORT
    write_whole(page, render(folder))
    return page


def render(folder: Path) -> str:
    """The page as text."""
    run = open_run(folder, needs=RunFile.SUMMARY)
    source, summary = run.source, run.summary()
    hidden = {source.target, *(column.name for column in summary.left_out)}
    suspects, voices = run.first_suspects(SHOWN[source.kind]), run.voices()
    weights = {k: v for k, v in summary.class_weights.items() if v is not None}
    return render_page(
        "run.html",
        source=source,
        summary=summary,
        title=source.data.name,
        run=folder.name,
        curves=_curves(summary),
        zeros=_zeros(summary),
        suspects=[
            _card(source, suspect, hidden, voices.get(suspect.index, [])) for suspect in suspects
        ],
        weights=sorted(weights.items(), key=lambda pair: pair[1]),
        widest=max([*weights.values(), 1.0]),
        matrix=_matrix(source, summary),
        sources=_sources(summary),
    )


def _sources(summary: RunSummary) -> str:
    """The share of wrong labels of each source, with intervals; "" without sources."""
    sources = summary.labels.sources[:MOST_SOURCES] if summary.labels is not None else ()
    if not sources:
        return ""
    worst_on_top = sources[::-1]
    shares = [each.wrong.share for each in worst_on_top]
    below = [each.wrong.share - each.wrong.low for each in worst_on_top]
    above = [each.wrong.high - each.wrong.share for each in worst_on_top]
    with panel("sources", (4.2, 0.7 + 0.22 * len(sources))) as drawn:
        places = range(len(sources))
        drawn.axes.errorbar(
            shares, places, xerr=[below, above], fmt="o", color=OURS, markersize=4, linewidth=1.4
        )
        # A dollar sign would begin a formula.
        names = [
            _shortened(each.source, 24).replace("$", r"\$")
            + ("" if each.weight is None else f" (counts {each.weight:.2f})")
            for each in worst_on_top
        ]
        drawn.axes.set_yticks(list(places), names)
        drawn.axes.set(xlabel="share of wrong labels", ylim=(-0.6, len(sources) - 0.4))
        drawn.axes.set_xlim(left=0)
    return drawn.svg


def _curves(summary: RunSummary) -> str:
    """The figure of merit during training, one line per method."""
    classes = summary.metric == "accuracy"
    key = "test_accuracy" if classes else "test_loss"
    what = {"test": "test rows", "holdout": "held-out clean rows"}.get(
        summary.judged_on, "the clean rows themselves"
    )
    with panel("curves") as drawn:
        for method, points in summary.curves.items():
            known = [point for point in points if point.get(key) is not None]
            drawn.axes.plot(
                [point["step"] for point in known],
                [point[key] for point in known],
                color=COLOURS[method],
                linestyle=LINES[method],
                linewidth=1.8,
                label=NAMES[method],
            )
        name = "accuracy" if classes else "squared error (scaled)"
        drawn.axes.set(xlabel="training step", ylabel=f"{name}, {what}")
        drawn.axes.set_ylim(0, 1.02 if classes else None)
        drawn.axes.locator_params(axis="x", nbins=5)
        drawn.axes.legend(loc="lower right" if classes else "upper right", frameon=False)
    return drawn.svg


def _zeros(summary: RunSummary) -> str:
    """The share of each batch that was given no weight."""
    points = [p for p in summary.curves["reweigh"] if p.get("zero_share") is not None]
    with panel("zeros") as drawn:
        drawn.axes.plot(
            [p["step"] for p in points],
            [p["zero_share"] for p in points],
            color=OURS,
            linewidth=1.8,
        )
        drawn.axes.set(
            xlabel="training step", ylabel="share of a batch without weight", ylim=(0, 1)
        )
        drawn.axes.locator_params(axis="x", nbins=5)
    return drawn.svg


def _matrix(source: RunSource, summary: RunSummary) -> Json | None:
    """Given against suggested labels; None where there are none, or too many classes for a table."""
    names = source.classes
    if not summary.confusion or len(names) > 12:
        return None
    counts = {(c.given, c.suggested): c.count for c in summary.confusion}
    return {
        "names": names,
        "rows": [(given, [counts.get((given, other), 0) for other in names]) for given in names],
        "most": max(counts.values()),
    }


@dataclass(frozen=True)
class VoiceCard:
    """A checked row that speaks against a suspect, in a few words or as a picture."""

    label: str
    picture: str | None
    text: str


@dataclass(frozen=True)
class SuspectCard:
    """A suspect, its example as the page shows it: a picture, a text, or some cells; and its voices."""

    suspect: Suspect
    voices: tuple[VoiceCard, ...] = ()
    picture: str | None = None
    text: str | None = None
    cells: tuple[tuple[str, str], ...] = ()
    more: int = 0


def _card(
    source: RunSource, suspect: Suspect, hidden: set[str], voices: Sequence[Voice]
) -> SuspectCard:
    against = [voice for voice in voices if voice.product < 0][:VOICES]
    heard = tuple(_voice(source, voice, hidden) for voice in against)
    if source.kind == "images":
        return SuspectCard(suspect, heard, picture=thumbnail(source.data, suspect.example))
    if source.kind == "text":
        return SuspectCard(suspect, heard, text=_shortened(suspect.example, TEXT))
    shown = _cells(suspect.example, hidden)
    return SuspectCard(suspect, heard, cells=shown[:CELLS], more=max(0, len(shown) - CELLS))


def _voice(source: RunSource, voice: Voice, hidden: set[str]) -> VoiceCard:
    if source.kind == "images":
        folder = source.data if voice.file == "data" else source.clean
        picture = None if folder is None else thumbnail(folder, voice.example)
        return VoiceCard(voice.label, picture, "")
    if source.kind == "text":
        return VoiceCard(voice.label, None, _shortened(voice.example, HEARD))
    cells = ", ".join(f"{name} {cell}" for name, cell in _cells(voice.example, hidden))
    return VoiceCard(voice.label, None, _shortened(cells, HEARD))


def _cells(example: str, hidden: set[str]) -> tuple[tuple[str, str], ...]:
    try:
        row = json.loads(example or "{}")
    except ValueError:  # of a voice, cut short
        return ()
    shown = [(k, v) for k, v in row.items() if k not in hidden and v is not None]
    return tuple((k, _shortened(_rounded(v), 60)) for k, v in shown)


def _rounded(cell: str) -> str:
    """Six digits of a long fraction are enough to recognise a row by."""
    try:
        return f"{float(cell):.6g}" if len(cell) > 8 and "." in cell else cell
    except ValueError:
        return cell


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
