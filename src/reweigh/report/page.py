"""The templates of reports."""

from typing import Any

from ..templates import environment
from ..text import numeral


def render(name: str, /, **values: Any) -> str:
    """The template `name` with `values` filled in."""
    page: str = environment("reweigh.report", numeral=numeral).get_template(name).render(values)
    return page
