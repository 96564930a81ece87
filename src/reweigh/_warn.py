"""Warnings that point at the user's line, however deep in the library they are raised."""

import sys
import warnings
from pathlib import Path

from .errors import ReweighWarning

_HERE = str(Path(__file__).parent)


def warn(message: str, kind: type[Warning] = ReweighWarning) -> None:
    """Warn, naming the first line on the call stack that is neither ours nor PyTorch's."""
    level, frame = 1, sys._getframe(0)
    while frame is not None and _is_inner(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, kind, stacklevel=level)


def _is_inner(filename: str) -> bool:
    return filename.startswith(_HERE) or "/torch/" in filename.replace("\\", "/")
