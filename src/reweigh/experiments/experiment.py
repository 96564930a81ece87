"""An experiment as data, and the cells its grid is made of.

experiment -> scale -> blocks (setup x methods x settings x seeds) -> cells
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ..errors import SettingError, unknown
from ..methods import parse
from .training_setup import Setting, Setup, Value, digest

SCALES = ("smoke", "small", "medium", "paper")


@dataclass(frozen=True)
class Row:
    """A method as typed, what the paper calls it, and whether it is given the clean images."""

    method: str
    name: str
    clean: bool = False


OURS = Row("reweigh_literal", "Ours", clean=True)
GUARDED = Row("reweigh", "Ours, safeguarded", clean=True)
TUNED_OURS = Row("reweigh+ft", "Ours, safeguarded +FT", clean=True)  # as the rivals are tuned


@dataclass(frozen=True)
class Target:
    """The paper's number: test accuracy in percent, and half its 95% interval where one is given."""

    method: str
    mean: float
    interval: float | None = None


@dataclass(frozen=True)
class Block:
    """A part of a grid: every method on every setting, with seeds 0 ... seeds-1."""

    setup: Setup
    methods: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: int


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    shows      what the report draws: "table", "imbalance", "weights", "clean-size", "noise-level",
               "confusion", "curves" or "human"
    rows       methods in the paper's order; those that no row names are left out of the tables
    claims     what the paper says of it in words and numbers, for figures without a table
    notes      how a scale differs from the paper, for the reader
    blocks     the grid at each scale; `published` has the same with the published code's ways
    """

    id: str
    title: str
    paper: str
    shows: str
    rows: tuple[Row, ...]
    blocks: Mapping[str, tuple[Block, ...]]
    published: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    claims: tuple[str, ...] = ()
    clean_title: str = "With the clean images"
    notes: Mapping[str, str] = field(default_factory=dict)

    def grid(self, scale: str, *, as_published: bool = False) -> tuple[Block, ...]:
        """The blocks at `scale`."""
        if scale not in self.blocks:
            raise unknown("scale", scale, self.blocks)
        if as_published and scale not in self.published:
            raise SettingError(
                f"{self.id} at --scale {scale} has no --as-published; "
                f"it has one at: {', '.join(self.published) or 'no scale'}"
            )
        return self.published[scale] if as_published else self.blocks[scale]


@dataclass(frozen=True)
class Cell:
    """One run of one experiment."""

    experiment: str
    method: str
    setting: tuple[tuple[str, Value], ...]
    seed: int
    setup: Setup

    @property
    def key(self) -> str:
        """A name for files and for looking up: "uniform+ft share=0.98 seed=0"."""
        return " ".join([self.method, *(f"{k}={v}" for k, v in self.setting), f"seed={self.seed}"])

    @property
    def file(self) -> str:
        """The key without blanks."""
        return self.key.replace(" ", "_")


def cells(
    experiment: Experiment,
    scale: str,
    *,
    as_published: bool = False,
    seeds: int | None = None,
    methods: Collection[str] = (),
    only: Mapping[str, str] | None = None,
) -> list[Cell]:
    """The grid's cells, each once; all methods of a seed before the next seed.

    seeds     instead of each block's own number
    methods   only these, as typed; any method may be asked for, also one the paper does not have here
    only      only settings with these values, written as in the results: {"share": "0.98"}
    """
    if seeds is not None and seeds < 1:
        raise SettingError(f"seeds is {seeds}; expected 1 or more")
    wanted = [str(parse(method)) for method in methods]
    grid = experiment.grid(scale, as_published=as_published)
    _check_only(grid, only or {})
    unique: dict[tuple[Any, ...], Cell] = {}
    for block in grid:
        chosen = wanted or block.methods
        numbers = range(block.seeds if seeds is None else seeds)
        for seed, setting, method in product(numbers, block.settings, chosen):
            if all(str(setting.get(k)) == v for k, v in (only or {}).items()):
                setup = block.setup.at(setting).seeded(seed)
                cell = Cell(experiment.id, method, tuple(setting.items()), seed, setup)
                unique.setdefault((method, cell.setting, seed), cell)
    return sorted(unique.values(), key=lambda cell: cell.seed)


def described(experiment: Experiment, scale: str, *, as_published: bool) -> dict[str, Any]:
    """What the results folder keeps of the experiment: enough for a report, and to refuse a mix."""
    blocks = experiment.grid(scale, as_published=as_published)
    setups = [
        {"setting": dict(setting), **block.setup.at(setting).described()}
        for block in blocks
        for setting in block.settings
    ]
    unique = list({digest(setup): setup for setup in setups}.values())
    return {
        "experiment": experiment.id,
        "scale": scale,
        "as_published": as_published,
        "title": experiment.title,
        "paper": experiment.paper,
        "shows": experiment.shows,
        "rows": [vars(row) for row in experiment.rows],
        "clean_title": experiment.clean_title,
        "targets": [vars(target) for target in experiment.targets],
        "claims": list(experiment.claims),
        "note": experiment.notes.get(scale, ""),
        "grid": [cell.key for cell in cells(experiment, scale, as_published=as_published)],
        "setups": unique,
        "digest": digest(unique),
    }


def _check_only(grid: tuple[Block, ...], only: Mapping[str, str]) -> None:
    settings = [setting for block in grid for setting in block.settings]
    for name, value in only.items():
        names = sorted({key for setting in settings for key in setting})
        if name not in names:
            raise unknown("variable", name, names)
        values = {str(setting[name]): None for setting in settings if name in setting}
        if value not in values:
            raise unknown(f"value of {name}", value, values)
