"""Optional dependencies, imported where they are used, so that the base install needs none."""

import importlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import MissingExtraError


def optional(module: str, *, package: str, needed_for: str, extra: str = "app") -> Any:
    """Import `module`, or say which extra brings `package` and what it is needed for."""
    try:
        # Ctrl-C inside a compiled module's import surfaces as "cannot import": let it wait.
        with held_interrupts():
            return importlib.import_module(module)
    except ImportError as error:
        raise _not_installed(needed_for, package, extra) from error


def missing_framework(extra: str, error: ImportError) -> MissingExtraError:
    """The error for an integration whose framework, which `extra` brings, is not installed."""
    return _not_installed("this integration", error.name or extra, extra)


def _not_installed(needed_for: str, package: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{needed_for} needs {package}, which is not installed; run: pip install 'reweigh[{extra}]'"
    )


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block; processes started inside never get it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
