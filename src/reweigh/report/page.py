"""Templates: jinja2 with everything escaped and nothing undefined."""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtraError
from ..text import numeral


def environment() -> Any:
    """For the templates of this package."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(
            "reports need jinja2, which is not installed; run: pip install 'reweigh[app]'"
        ) from error
    made = Environment(
        loader=PackageLoader("reweigh.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["numeral"] = numeral
    return made
