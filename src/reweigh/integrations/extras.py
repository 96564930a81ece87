"""The error for an integration whose framework is not installed."""

from __future__ import annotations

from ..errors import MissingExtraError


def missing(extra: str, error: ImportError) -> MissingExtraError:
    """What to run so that `reweigh.integrations` can use the framework that `extra` brings."""
    return MissingExtraError(
        f"this integration needs {error.name or extra}, which is not installed; "
        f"run: pip install 'reweigh[{extra}]'"
    )
