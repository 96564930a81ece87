"""Figures, drawn once for the page and once for paper.

In the page a figure is an SVG that takes its colours from it: matplotlib draws with stand-in
colours, each of which is then replaced by a CSS variable, so that one figure reads well on a light
page, on a dark one, and in print. Text stays text, in the page's own font. `Panel.save` draws the
same in fixed colours, as PNG and PDF files.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
_ROLES = ("ink", "muted", "grid", "plain", "ours")
_VARIABLES = {getattr(PAGE, role): f"var(--{role})" for role in _ROLES} | {
    colour: f"var(--s{k})" for k, colour in enumerate(PAGE.series, start=1)
}
FORMATS = ("png", "pdf")
SIZE = (4.2, 2.9)  # inches
SHAPES = {  # of the markers, around (19, 6), for the legend
    "o": "M15 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "s": "M15 2H23V10H15Z",
    "D": "M19 1L24 6L19 11L14 6Z",
    "^": "M19 1L24 10H14Z",
    "v": "M19 11L24 2H14Z",
    "<": "M14 6L23 1V11Z",
    ">": "M24 6L15 1V11Z",
    "P": "M17 1H21V4H24V8H21V11H17V8H14V4H17Z",
}


@dataclass
class Drawing:
    """One small figure: draw on `axes`, then take `svg`."""

    axes: Axes
    svg: str = ""


@contextmanager
def panel(name: str, size: tuple[float, float] = SIZE) -> Iterator[Drawing]:
    """A figure for the page, of `size` inches; small, so that its text stays readable on a phone.

    `name` keeps the identifiers inside apart from those of other figures on the page.
    """
    with _canvas(name, PAGE, size) as figure:
        drawn = Drawing(figure.subplots())
        yield drawn
        drawn.svg = _embed(svg_text(figure))


Draw = Callable[["Axes", Palette], None]


@dataclass(frozen=True)
class Panel:
    """One drawing: `text` says what it shows to those who cannot see it."""

    name: str
    title: str
    text: str
    draw: Draw
    size: tuple[float, float] = SIZE

    @property
    def svg(self) -> str:
        """As an SVG element for the page."""
        with panel(self.name, self.size) as drawn:
            self.draw(drawn.axes, PAGE)
        return drawn.svg

    def save(self, folder: Path) -> None:
        """As files, FOLDER/NAME.png and .pdf, on white."""
        width, height = self.size
        with _canvas(self.name, PAPER, (width, height + 0.5)) as figure:
            self.draw(figure.subplots(), PAPER)
            for form in FORMATS:
                stream = io.BytesIO()
                # Without a date a figure is the same file whenever it is drawn.
                metadata = {"CreationDate": None} if form == "pdf" else None
                figure.savefig(stream, format=form, dpi=200, metadata=metadata)
                write_whole(folder / f"{self.name}.{form}", stream.getvalue())


@dataclass(frozen=True)
class Style:
    """How the line of a method is drawn; `colour` is a place in the palette."""

    name: str
    colour: str
    marker: str
    dashes: Any
    width: float = 1.6

    def of(self, palette: Palette) -> str:
        """The colour in `palette`."""
        if self.colour.isdigit():
            return palette.series[int(self.colour) % len(palette.series)]
        return str(getattr(palette, self.colour))

    @property
    def shape(self) -> str:
        """The marker as a path."""
        return SHAPES[self.marker]

    @property
    def variable(self) -> str:
        """The colour as the page names it."""
        return _VARIABLES[self.of(PAGE)]


@dataclass(frozen=True)
class PaperFigure:
    """Panels side by side; `key` are the styles of its lines, for the legend."""

    caption: str
    panels: list[Panel]
    key: list[Style] = field(default_factory=list)


def plotting() -> tuple[Any, Any]:
    """matplotlib, and its class of figures."""
    matplotlib, figure = (
        optional(name, package="matplotlib", needed_for="a figure")
        for name in ("matplotlib", "matplotlib.figure")
    )
    return matplotlib, figure.Figure


@contextmanager
def _canvas(name: str, palette: Palette, size: tuple[float, float]) -> Iterator[Figure]:
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
        yield canvas(figsize=size, layout="constrained")


def name_lines(axes: Axes, palette: Palette) -> None:
    """A legend beneath the axes, where the drawing needs one."""
    if palette.legend:
        axes.get_figure(root=True).legend(  # type: ignore[union-attr]
            loc="outside lower center", ncols=3, frameon=False, fontsize=7, handlelength=3
        )


def svg_text(figure: Figure) -> str:
    """The figure as an SVG document, without a date."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return stream.getvalue()


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
