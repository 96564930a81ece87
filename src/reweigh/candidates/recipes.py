"""Which plain candidates there are for which kind of data.

    table     logistic regression, random forest, gradient boosting
    text      logistic regression on n-grams (beside the network, which sees 192 numbers)
    images    logistic regression on histograms of edges, a cheap rival of the network

The names say model and rows: `boosting_corrected` is gradient boosting on the corrected data.
"""

from __future__ import annotations

from ..errors import unknown
from .learner import Learner
from .light_boosting import LightBoosting, lightgbm
from .plain import (
    PlainCandidate,
    PlainData,
    Posteriors,
    on_all,
    on_both,
    on_checked,
    on_corrected,
    on_near,
    on_pruned,
)
from .ridge import Ridge
from .softmax_regression import SoftmaxRegression
from .trees import Boosting, Forest

ROWS = {
    "checked": "the checked rows alone",
    "all": "all rows as labelled",
    "weighted": "all rows, the checked ones weighted up",
    "corrected": "the corrected data",
    "pruned": "without rows that look wrong",
}
STRENGTHS = (1.0, 10.0)
"""Of a regression on the checked rows alone."""


LINEAR = tuple(f"linear_{rows}" for rows in ROWS)
TREES = (
    "forest_checked",
    "forest_corrected",
    "forest_pruned",
    "boosting_checked",
    "boosting_all",
    "boosting_corrected",
    "boosting_pruned",
)
LINEAR_NUMBERS = ("linear_checked", "linear_all", "linear_weighted", "linear_pruned")
TREES_NUMBERS = (
    "forest_checked",
    "forest_pruned",
    "boosting_checked",
    "boosting_all",
    "boosting_weighted",
    "boosting_pruned",
)


def plain_names(*, trees: bool, numbers: bool = False) -> tuple[str, ...]:
    """The names of `plain_candidates`, or of `number_candidates`."""
    linear, more = (LINEAR_NUMBERS, TREES_NUMBERS) if numbers else (LINEAR, TREES)
    return (*linear, *more) if trees else linear


BOOSTERS = ("scikit-learn", "lightgbm")
"""Whose gradient boosting is tried."""


def boosting_of(library: str, *, seed: int) -> Learner:
    """The gradient boosting of one of BOOSTERS; an error if it is not installed."""
    if library not in BOOSTERS:
        raise unknown("library of trees", library, BOOSTERS)
    if library == "scikit-learn":
        return Boosting(seed=seed)
    lightgbm()
    return LightBoosting(seed=seed)


def number_candidates(
    data: PlainData, *, trees: bool, seed: int = 0, library: str = BOOSTERS[0]
) -> list[PlainCandidate]:
    """Those of a regression. A number has no posterior here, so there are no corrected data."""
    linear = Ridge()
    firm = tuple(Ridge(strength) for strength in (0.1, *STRENGTHS))
    forest, boosting = Forest(seed=seed), boosting_of(library, seed=seed)
    ways: dict[str, tuple[Learner, object]] = {
        "linear_checked": (linear, on_checked(firm)),
        "linear_all": (linear, on_all(linear)),
        "linear_weighted": (linear, on_both(linear)),
        "linear_pruned": (linear, on_near(linear)),
        "forest_checked": (forest, on_checked([forest])),
        "forest_pruned": (forest, on_near(forest)),
        "boosting_checked": (boosting, on_checked([boosting])),
        "boosting_all": (boosting, on_all(boosting)),
        "boosting_weighted": (boosting, on_both(boosting)),
        "boosting_pruned": (boosting, on_near(boosting)),
    }
    found = []
    for name in plain_names(trees=trees, numbers=True):
        (model, rows), (learner, way) = name.split("_"), ways[name]
        found.append(_named(model, rows, learner, data, way))
    return found


def plain_candidates(
    data: PlainData, *, trees: bool, seed: int = 0, library: str = BOOSTERS[0]
) -> list[PlainCandidate]:
    """All of them; `trees`: columns of a table, for which trees are made; `library` is one of BOOSTERS."""
    linear = SoftmaxRegression()
    firm = tuple(SoftmaxRegression(strength) for strength in STRENGTHS)
    by_line = Posteriors(linear, firm[-1 if not trees else 0], (1, 2, 3, 4))
    made = [
        _named("linear", "checked", linear, data, on_checked(firm)),
        _named("linear", "all", linear, data, on_all(linear)),
        _named("linear", "weighted", linear, data, on_both(linear)),
        _named("linear", "corrected", linear, data, by_line),
        _named("linear", "pruned", linear, data, on_pruned(linear, [by_line])),
    ]
    if not trees:
        return made
    forest, boosting = Forest(seed=seed), boosting_of(library, seed=seed)
    by_forest = Posteriors(forest, forest, (1,))
    sources = [by_line, by_forest]
    return [
        *made,
        _named("forest", "checked", forest, data, on_checked([forest])),
        _named("forest", "corrected", forest, data, by_forest),
        _named("forest", "pruned", forest, data, on_pruned(forest, sources)),
        _named("boosting", "checked", boosting, data, on_checked([boosting])),
        _named("boosting", "all", boosting, data, on_all(boosting)),
        _named("boosting", "corrected", boosting, data, on_corrected(boosting, sources)),
        _named("boosting", "pruned", boosting, data, on_pruned(boosting, sources)),
    ]  # fmt: skip


def _named(model: str, rows: str, learner: Learner, data: PlainData, way: object) -> PlainCandidate:
    title = f"{learner.name}, {ROWS[rows]}"
    return PlainCandidate(f"{model}_{rows}", title, rows != "all", data, way)  # type: ignore[arg-type]
