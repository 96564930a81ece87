"""Pages from jinja2 templates: every value is escaped, and a value that is missing is an error."""

from collections.abc import Callable
from typing import Any

from .optional import optional


def environment(package: str, **filters: Callable[..., Any]) -> Any:
    """For the templates in the folder `templates` of `package`; `filters` by their name there."""
    jinja2 = optional("jinja2", package="jinja2", needed_for="a page")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made
