"""A setting in words: only what varies, in the reader's terms."""

from __future__ import annotations

from typing import Any

from ..results import Json

NOISES = {"uniform": "any other class", "background": "one class"}


def titles(settings: list[Json]) -> list[str]:
    """A title for each setting, of the variables in which they differ."""
    names = {name for setting in settings for name in setting}
    varying = [
        name for name in ("noise", "rate", "share", "clean")
        if name in names and len({setting.get(name) for setting in settings}) > 1
    ]  # fmt: skip
    return [" ".join(_words(name, setting[name]) for name in varying) for setting in settings]


def _words(name: str, value: Any) -> str:
    if name == "share":
        return f"{100 * value:g}%"
    if name == "rate":
        return f"{100 * value:g}%"
    if name == "noise":
        return NOISES.get(value, str(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
