"""The table of methods: the only list of them. A row, a file and a card make one.

`cost` is the time of a step in plain steps (one forward and one backward on the train batch), with
a clean batch as large as the train batch where there is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..errors import unknown
from .clean_only import clean_only
from .contract import Method, Problem
from .hard_mining import hard_mining
from .needs import check
from .proportion import proportion
from .random import random
from .resample import resample
from .reweigh import reweigh, reweigh_literal
from .uniform import uniform
from .weighted import weighted


@dataclass(frozen=True)
class Entry:
    """One row: a factory `make(problem, **options)`, and what it needs of a problem (needs.py)."""

    make: Callable[..., Method]
    summary: str
    cost: str
    needs: tuple[str, ...] = ()

    @property
    def needs_classes(self) -> bool:
        """Whether regression is refused."""
        return "classes" in self.needs

    @property
    def pretrains(self) -> bool:
        """Whether a plain model must be trained first, for `pretrained` and `confusion`."""
        return not {"pretrained", "confusion"}.isdisjoint(self.needs)


METHODS: Mapping[str, Entry] = MappingProxyType(
    {
        "uniform": Entry(uniform, "Plain training: every example counts the same.", "1"),
        "proportion": Entry(
            proportion, "Examples count by the inverse frequency of their class.", "1", ("classes",)
        ),
        "resample": Entry(
            resample, "Batches draw every class equally often.", "1", ("classes",)
        ),
        "hard_mining": Entry(
            hard_mining,
            "Keeps the minority and the hardest examples of the majority.",
            "1",
            ("classes",),
        ),
        "random": Entry(random, "Rectified Gaussian weights, drawn anew at every step.", "1"),
        "weighted": Entry(
            weighted,
            "Oracle: examples count by the true share of right labels in their class.",
            "1",
            ("classes", "right_share"),
        ),
        "clean_only": Entry(
            clean_only, "Plain training on the clean set alone.", "1", ("clean",)
        ),
        "reweigh": Entry(
            reweigh,
            "Ours: examples count by how much a step on them helps the clean batch.",
            "1.8 to 2.7",
            ("clean",),
        ),
        "reweigh_literal": Entry(
            reweigh_literal,
            "Ours without a safeguard: the paper's rule to the letter.",
            "1.8 to 2.7",
            ("clean",),
        ),
    }
)  # fmt: skip


def lookup(name: str) -> Entry:
    """The row of `name`, or an error that suggests the nearest."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def make(name: str, problem: Problem, **options: Any) -> Method:
    """The method of that name for a problem, refused where the problem lacks what it needs."""
    entry = lookup(name)
    known = list(inspect.signature(entry.make).parameters)[1:]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    check(problem, entry.needs, name)
    return entry.make(problem, **options)
