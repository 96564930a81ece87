"""Figures, drawn once for the page and once for paper.

In the page a figure is an SVG that takes its colours from it: matplotlib draws with stand-in
colours, each of which is then replaced by a CSS variable, so that one figure reads well on a light
page, on a dark one, and in print. Text stays text, in the page's own font. `saved` draws the same
in fixed colours, as PNG and PDF files.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_whole
from ..optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#010101", "#020202", "#030303"
PLAIN, OURS = "#040404", "#050505"


@dataclass(frozen=True)
class Palette:
    """Colours by role; `series` are for further methods beside `plain` and `ours`.

    `legend`: the drawing must name its lines itself; the page does so beneath.
    """

    ink: str
    muted: str
    grid: str
    plain: str
    ours: str
    series: tuple[str, ...]
    legend: bool = False


PAGE = Palette(
    INK, MUTED, GRID, PLAIN, OURS, ("#060606", "#070707", "#080808", "#090909", "#0a0a0a")
)
PAPER = Palette(
    "#1d1d1f", "#6b6b70", "#dddbd6", "#b4560f", "#1b5fa8",
    ("#2b7a4b", "#7a4aa8", "#b02a5b", "#00758a", "#7d6a00"), legend=True,
)  # fmt: skip
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PLAIN: "var(--plain)",
    OURS: "var(--ours)",
    **{colour: f"var(--s{k})" for k, colour in enumerate(PAGE.series, start=1)},
}
FORMATS = ("png", "pdf")


class Drawing:
    """One small figure: draw on `axes`, then take `svg`."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.svg = ""


@contextmanager
def panel(name: str, *, width: float = 4.2, height: float = 2.9) -> Iterator[Drawing]:
    """A panel of `width` by `height` inches; small, so that its text stays readable on a phone.

    `name` keeps the identifiers inside apart from those of other figures on the page.
    """
    with _canvas(name, PAGE, width, height) as figure:
        drawn = Drawing(figure.subplots())
        yield drawn
        drawn.svg = _svg(figure)


Draw = Callable[["Axes", Palette], None]


def embedded(name: str, draw: Draw, *, width: float = 4.2, height: float = 2.9) -> str:
    """What `draw(axes, palette)` draws, as an SVG element for the page."""
    with panel(name, width=width, height=height) as drawn:
        draw(drawn.axes, PAGE)
    return drawn.svg


def saved(folder: Path, name: str, draw: Draw, *, width: float = 4.2, height: float = 2.9) -> None:
    """The same as files, FOLDER/NAME.png and .pdf, on white."""
    with _canvas(name, PAPER, width, height) as figure:
        draw(figure.subplots(), PAPER)
        for form in FORMATS:
            stream = io.BytesIO()
            # Without a date a figure is the same file whenever it is drawn.
            metadata = {"CreationDate": None} if form == "pdf" else None
            figure.savefig(stream, format=form, dpi=200, metadata=metadata)
            write_whole(folder / f"{name}.{form}", stream.getvalue())


def plotting() -> tuple[Any, Any]:
    """matplotlib, and its class of figures."""
    matplotlib, figure = (
        optional(name, package="matplotlib", needed_for="a figure")
        for name in ("matplotlib", "matplotlib.figure")
    )
    return matplotlib, figure.Figure


@contextmanager
def _canvas(name: str, palette: Palette, width: float, height: float) -> Iterator[Figure]:
    matplotlib, canvas = plotting()
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "pdf.fonttype": 42,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "axes.edgecolor": palette.muted,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": palette.grid,
        "grid.linewidth": 0.6,
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "xtick.labelcolor": palette.ink,
        "ytick.labelcolor": palette.ink,
    }
    with matplotlib.rc_context(style):
        yield canvas(figsize=(width, height), layout="constrained")


def name_lines(axes: Axes, palette: Palette) -> None:
    """A legend beneath the axes, where the drawing needs one."""
    if palette.legend:
        axes.get_figure(root=True).legend(  # type: ignore[union-attr]
            loc="outside lower center", ncols=3, frameon=False, fontsize=7, handlelength=3
        )


def _svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _embed(stream.getvalue())


def _embed(document: str) -> str:
    """The `<svg>` element of a document, sized by the page, coloured by it, naming no address."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    opening, rest = element.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', opening)
    assert box is not None, "matplotlib gives every figure a viewBox"
    for colour, variable in _VARIABLES.items():
        rest = rest.replace(colour, variable)
    # The page's font, not the list of fonts matplotlib knows of.
    rest = re.sub(r"font: (\d+)px [^;\"]*", r"font-size: \1px", rest)
    return f'<svg {box[0]} aria-hidden="true">{rest}'.strip()
