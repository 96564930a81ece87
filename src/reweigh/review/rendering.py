"""The templates of the review page, and the filters they use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..templates import environment
from . import visible_text

LONGEST_WHY = 500


@lru_cache(1)
def _environment() -> Any:
    return environment(
        "reweigh.review",
        label=visible_text.label,
        sentence=lambda text: visible_text.shortened(text, LONGEST_WHY).text,
        percent=visible_text.percent,
        count=lambda number: f"{number:,}",
    )


def render(name: str, /, **values: Any) -> str:
    """The template `name` with `values` filled in."""
    page: str = _environment().get_template(name).render(values)
    return page
