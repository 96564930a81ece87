"""The page's templates, and what they show: of bounded length, with nothing invisible in it.

The templates escape every value. The filters here deal with what escaping leaves: characters that change the
direction of the text after them, or show nothing at all, are shown as their code points. A very long
text is cut, and its length is said. Right-to-left text stays as it is; the page isolates it from the
text around it.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..templates import environment

LONGEST_LABEL = 200
LONGEST_WHY = 500
LONGEST_CELL = 1_000
LONGEST_TEXT = 20_000
MOST_CELLS = 200

# Controls but tab and newline; zero-width space and byte order mark; overrides, embeddings, isolates.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\u202a-\u202e\u2066-\u2069]")
_LONE = re.compile("[\ud800-\udfff]")  # half of a pair: JSON can spell it, no encoding can send it


@dataclass(frozen=True)
class ShownText:
    """A text as shown; `length` is that of the whole, None if nothing was cut."""

    text: str
    length: int | None = None


def visible(text: str) -> str:
    """`text` with hidden characters shown as their code points.

    >>> visible("good\\u202edab")
    'good⟨U+202E⟩dab'
    """
    text = _LONE.sub("\ufffd", text.replace("\r\n", "\n"))
    return _HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def shortened(text: str, limit: int) -> ShownText:
    """The first `limit` characters, made visible.

    >>> shortened("abcdef", 3)
    ShownText(text='abc', length=6)
    """
    if len(text) <= limit:
        return ShownText(visible(text))
    return ShownText(visible(text[:limit]), len(text))


def label(text: str | None) -> str:
    """A label in one line."""
    shown = shortened(text or "", LONGEST_LABEL)
    return " ".join(shown.text.split()) + ("…" if shown.length else "")


def cells(example: str, *, target: str) -> tuple[list[tuple[str, ShownText]], int]:
    """Name and content of a row's cells, without the target's, and how many more there are."""
    try:
        row = json.loads(example)
    except ValueError:
        row = {"example": example}
    items = [(name, value) for name, value in row.items() if name != target]
    shown = [
        (label(name), shortened("" if value is None else str(value), LONGEST_CELL))
        for name, value in items[:MOST_CELLS]
    ]
    return shown, len(items) - len(shown)


def percent(share: float) -> str:
    """A share in whole percents that never claims certainty.

    >>> percent(0.9996), percent(0.934), percent(0.0001)
    ('>99%', '93%', '<1%')
    """
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{share:.0%}"


def render(name: str, /, **values: Any) -> str:
    """The template `name` with `values` filled in."""
    page: str = _environment().get_template(name).render(values)
    return page


@lru_cache(1)
def _environment() -> Any:
    return environment(
        "reweigh.review",
        label=label,
        sentence=lambda text: shortened(text, LONGEST_WHY).text,
        percent=percent,
        count=lambda number: f"{number:,}",
    )
