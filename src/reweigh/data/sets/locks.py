"""One process at a time fetches a data set; the others wait and find it there.

    with turn(root, "mnist"): ...

A lock on the file ROOT/.mnist.lock, removed at the end. The operating system lets go of it when a
process dies, so nothing is ever stuck. Where there is no `fcntl` (Windows) this waits for nobody.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def turn(root: Path, name: str) -> Iterator[bool]:
    """Hold the lock of `name`; yields whether it is really held."""
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError:
        yield False
        return
    path = root / f".{name}.lock"
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Whoever had it before removed the file: a lock on a removed file guards nothing.
            if _is_same(handle, path):
                try:
                    yield True
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)


def _is_same(handle: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False
