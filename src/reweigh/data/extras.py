"""Optional dependencies, imported where they are used, so that the base install needs none."""

from __future__ import annotations

import importlib
from typing import Any

from reweigh.errors import MissingExtraError


def optional(module: str, *, package: str, needed_for: str) -> Any:
    """Import `module`, or say which extra brings `package` and what it is needed for."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{needed_for} needs {package}, which is not installed; run: pip install 'reweigh[app]'"
        ) from error
