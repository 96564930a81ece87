"""Writing files so that what is there is whole: beside the target first, then renamed onto it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DataError


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path`; whoever reads `path` sees the old content or the new, never a part."""
    with whole_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place at the end; an error removes it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    fresh = Path(name)
    try:
        yield fresh
        fresh.chmod(0o644)  # mkstemp gives 0600; a report is for others to read
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def writable_folder(path: Path) -> Path:
    """`path` as a folder that takes files, made if it is not there; before any work is done.

    Tried by writing rather than by looking at the permissions, which say nothing about a read-only
    or a full disk.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{path} is a file; expected a folder, or a name for a new one") from None
    except OSError as error:
        raise DataError(
            f"cannot write in {path}: {error.strerror or error}; expected a folder you may write to"
        ) from None
    return path
