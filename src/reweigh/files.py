"""Files that other processes may be looking at.

write_whole, whole_file   write beside the target, then rename onto it: a reader never sees a part
whole_folder              the same for a new folder
locked                    one process at a time
writable_folder           try to write, before any work is done
sync_folder               a new name in a folder survives a power cut
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .errors import DataError, ReweighError, StorageError

_FRESH = ".writing-"


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write `content` to `path`; a reader of `path` sees the old content or the new, never a part."""
    with whole_file(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes `path` when the block ends well, and vanishes otherwise.

    The content is on the disk before the rename, and the rename before the block ends: not even a
    power cut leaves a part of a file.
    """
    fresh: str | None = None
    try:
        handle, fresh = tempfile.mkstemp(prefix=f"{_FRESH}{path.name}-", dir=path.parent)
        with open(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(fresh, 0o644)  # mkstemp gives 0600; a report is for others to read
        os.replace(fresh, path)
        sync_folder(path.parent)
    except BaseException as error:
        if fresh is not None:
            with suppress(OSError):
                Path(fresh).unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise unwritable(path, error) from error
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when the block ends well, and vanishes otherwise.

    `path` must not be there, or be an empty folder.
    """
    fresh: str | None = None
    try:
        fresh = tempfile.mkdtemp(prefix=f"{_FRESH}{path.name}-", dir=path.parent)
        yield Path(fresh)
        for file in (each for each in Path(fresh).rglob("*") if each.is_file()):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        os.chmod(fresh, 0o755)  # mkdtemp gives 0700
        with suppress(FileNotFoundError):
            path.rmdir()  # Windows renames onto nothing that is there
        os.rename(fresh, path)
        sync_folder(path.parent)
    except BaseException as error:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, ReweighError):
            raise unwritable(path, error) from error
        raise


def unwritable(path: Path, error: OSError) -> StorageError:
    """The error for a file that could not be written."""
    return StorageError(
        f"cannot write {path}: {error.strerror or error}; expected room for it: free some space or "
        f"choose another folder, and run the same again"
    )


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written in `folder`."""
    for fresh in folder.glob(f"{_FRESH}*"):
        if fresh.is_dir():
            shutil.rmtree(fresh, ignore_errors=True)
        else:
            fresh.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, busy: ReweighError | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is made and removed again; one process at a time can.

    Waits while another process holds it or, with `busy`, raises that error at once. The operating
    system frees the lock when its process dies, so nothing is ever stuck. Works on Windows too.
    Never give a file with content: it is removed at the end.
    """
    from filelock import FileLock, Timeout  # takes a while to import, and few commands lock

    # A lock may be freed by another thread than the one that took it: a server that shuts down.
    lock = FileLock(path, timeout=-1 if busy is None else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        assert busy is not None, "without a limit nothing times out"
        raise busy from None
    try:
        yield
    finally:
        # While it is held: those who wait see that their file is gone and make it anew. Windows
        # refuses, and there the lock removes its file itself.
        with suppress(OSError):
            path.unlink()
        lock.release()


def sync_folder(folder: Path) -> None:
    """Make a new name in `folder` last through a power cut, where folders can be synced."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
