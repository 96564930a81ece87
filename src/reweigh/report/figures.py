"""Figures as SVG that lives inside a page and takes its colours from it.

matplotlib draws with stand-in colours; each is then replaced by a CSS variable, so that one figure
reads well on a light page, on a dark one, and in print. Text stays text, in the page's own font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#010101", "#020202", "#030303"
PLAIN, OURS = "#040404", "#050505"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PLAIN: "var(--plain)",
    OURS: "var(--ours)",
}


class Panel:
    """One small figure: draw on `axes`, then take `svg`."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.svg = ""


@contextmanager
def panel(name: str, *, width: float = 4.2, height: float = 2.9) -> Iterator[Panel]:
    """A panel of `width` by `height` inches; small, so that its text stays readable on a phone.

    `name` keeps the identifiers inside apart from those of other figures on the page.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "reports need matplotlib, which is not installed; run: pip install 'reweigh[app]'"
        ) from error
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        drawn = Panel(figure.subplots())
        yield drawn
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawn.svg = _embed(stream.getvalue())


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
