"""Accuracy or error against one variable: one line per method, told apart without colour, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..intervals import Summary, summarise
from ..results import Json, Results
from .figures import Draw, Palette, name_lines
from .settings import titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MARKERS = "^Dv<>P"
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
DASHES: tuple[Any, ...] = (
    (0, ()), (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1)),
)  # fmt: skip
LABELS = {
    "share": "share of nines in the train set",
    "clean": "clean images",
    "rate": "labels flipped to the background class",
}
OURS, GUARDED, BASELINE = "reweigh_literal", "reweigh", "uniform"


@dataclass(frozen=True)
class Style:
    """How a method is drawn; `colour` is a place in the palette."""

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
        return (
            f"var(--s{int(self.colour) % 5 + 1})"
            if self.colour.isdigit()
            else f"var(--{self.colour})"
        )


@dataclass(frozen=True)
class LinePlot:
    """A drawing, and what is in it."""

    styles: list[Style]
    points: list[tuple[Style, list[tuple[str, Summary]]]]
    draw: Draw


def styles(rows: list[Json]) -> dict[str, Style]:
    """A style for each method: ours and the baseline always have the same one."""
    chosen: dict[str, Style] = {}
    others = 0
    for k, row in enumerate(rows):
        method, name = row["method"], row["name"]
        if method == OURS:
            chosen[method] = Style(name, "ours", "o", DASHES[0], 2.4)
        elif method == GUARDED:
            chosen[method] = Style(name, "ours", "D", DASHES[1], 1.6)
        elif method == BASELINE:
            chosen[method] = Style(name, "plain", "s", DASHES[0], 1.6)
        else:
            chosen[method] = Style(
                name, str(others), MARKERS[others % len(MARKERS)], DASHES[1 + k % 4], 1.6
            )
            others += 1
    return chosen


def against(results: Results, variable: str, *, errors: bool) -> LinePlot:
    """Every method of `results` over the values of `variable`."""
    settings = sorted(results.settings, key=lambda s: float(s[variable]))
    names = titles(settings) if len(settings) > 1 else [str(settings[0][variable])]
    points = []
    for method, style in styles(results.rows).items():
        mine = []
        for setting, name in zip(settings, names, strict=True):
            values = [100 * x["metrics"]["test_accuracy"] for x in results.of(method, setting)]
            if values:
                values = [100 - value for value in values] if errors else values
                mine.append((name, summarise(values)))
        if mine:
            points.append((style, mine))
    places = {name: k for k, name in enumerate(names)}

    def draw(axes: Axes, palette: Palette) -> None:
        for k, (style, mine) in enumerate(points):
            # Side by side, or the bars of one method would hide those of another.
            shift = 0.05 * (k - (len(points) - 1) / 2)
            axes.errorbar(
                [places[name] + shift for name, _ in mine],
                [s.mean for _, s in mine],
                yerr=[s.interval or 0 for _, s in mine],
                color=style.of(palette),
                marker=style.marker,
                markersize=5,
                linestyle=style.dashes,
                linewidth=style.width,
                elinewidth=1,
                label=style.name,
            )
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.35, len(names) - 0.65)
        axes.set(xlabel=LABELS[variable], ylabel=f"test {'error' if errors else 'accuracy'} (%)")
        if errors:
            axes.set_ylim(bottom=0)
        name_lines(axes, palette)

    return LinePlot([style for style, _ in points], points, draw)
