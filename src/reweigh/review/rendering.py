"""The templates, in which every value is escaped."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import showing

LONGEST_WHY = 500


@lru_cache(1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reweigh.review"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["label"] = showing.label
    environment.filters["sentence"] = lambda text: showing.shortened(text, LONGEST_WHY).text
    environment.filters["percent"] = showing.percent
    environment.filters["count"] = lambda number: f"{number:,}"
    return environment


def render(name: str, **values: Any) -> str:
    """The template `name` with `values` filled in."""
    return _environment().get_template(name).render(values)
