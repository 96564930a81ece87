"""The folder that data sets are fetched into: one process at a time, enough room, nothing left over."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import DataError
from ...files import locked
from .store import MARK


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """One process at a time fetches `name`; the others wait and find it there.

    So what a killed process left of it can be swept away.
    """
    with locked(folder / f".{name}.lock"):
        for stale in folder.glob(f".{name}-{MARK}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def workspace(folder: Path, name: str) -> Iterator[Path]:
    """A temporary folder inside `folder`, removed at the end whatever happens."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-{MARK}", dir=folder) as made:
        yield Path(made)


@contextmanager
def enough_room(folder: Path, need: int) -> Iterator[None]:
    """Refuse at once when the disk is too full, and in one line when it fills up meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < need:
            raise DataError(
                f"{folder} has {free:,} bytes free; about {need:,} are needed on the way: "
                "free some, or choose another folder with --root DIR"
            )
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else (error.strerror or str(error))
        where = Path(error.filename or folder)
        ours = where in (folder, *folder.parents) or folder in where.parents
        hint = "; choose another folder with --root DIR" if ours else ""
        raise DataError(f"{where}: {what}; nothing was placed{hint}") from error
