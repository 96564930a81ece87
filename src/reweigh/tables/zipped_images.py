"""Images inside a zip archive, read where they lie: nothing is unpacked to the disk.

    photos.zip: cat/1.jpg  dog/2.png ...     or all of it below one folder: photos/cat/1.jpg ...

Names with `..`, a drive or a leading slash are passed over, as hidden files are. An image that unpacks to
more than `LARGEST` bytes counts as unreadable, and an archive that claims to unpack to `RATIO` times its
size is refused: both are made to fill the memory.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO

from ..errors import DataError

ENDINGS = (".zip",)
LARGEST = 256 * 2**20
RATIO = 1_032
"""What deflate can do at best; entries that overlap claim more."""


@dataclass(frozen=True)
class ZippedImage:
    """An image in `archive`, where its full name is `member`; shown as `name`."""

    archive: Path
    member: str
    name: str

    def open(self) -> IO[bytes]:
        """Its bytes, in memory; an OSError if they cannot be had."""
        try:
            book = _opened(self.archive)
            if book.getinfo(self.member).file_size > LARGEST:
                raise OSError(f"{self} is larger than {LARGEST >> 20} MB")
            return io.BytesIO(book.read(self.member))
        # A password, a method of packing that is not known, damaged content.
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, KeyError) as error:
            raise OSError(f"{self} cannot be unpacked ({error})") from error

    def __str__(self) -> str:
        return f"{self.archive}/{self.name}"


def is_image_archive(path: Path) -> bool:
    """Whether this is a file called .zip."""
    return path.name.lower().endswith(ENDINGS) and path.is_file()


def zipped_images(path: Path, endings: tuple[str, ...]) -> Mapping[str, ZippedImage]:
    """The images of an archive by their names, sorted; without a folder that all of them lie in."""
    return _images(path, *_state(path), endings)


@lru_cache(maxsize=4)
def _images(
    path: Path, size: int, time: int, endings: tuple[str, ...]
) -> Mapping[str, ZippedImage]:
    book = _archive(path.resolve(), size, time)
    members = [entry.filename for entry in book.infolist() if _is_image(entry.filename, endings)]
    tops = {name.split("/", 1)[0] for name in members}
    deep = all(name.count("/") >= 2 for name in members)
    shown = {(name.split("/", 1)[1] if len(tops) == 1 and deep else name): name for name in members}
    return {name: ZippedImage(path, shown[name], name) for name in sorted(shown)}


def _is_image(member: str, endings: tuple[str, ...]) -> bool:
    parts = PurePosixPath(member).parts
    unsafe = member.startswith("/") or "\\" in member or "\0" in member or ":" in parts[0]
    hidden = any(
        part.startswith(".") or part == "__MACOSX" for part in parts
    )  # `..` is hidden, too
    return member.lower().endswith(endings) and not unsafe and not hidden


def _opened(path: Path) -> zipfile.ZipFile:
    return _archive(path.resolve(), *_state(path))


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4)
def _archive(path: Path, size: int, _time: int) -> zipfile.ZipFile:
    """Opened once: its table of contents may be long. Reading from several threads is allowed."""
    try:
        book = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{path} is no zip archive, or is truncated ({error}); pack it again"
        ) from None
    claimed = sum(entry.file_size for entry in book.infolist())
    if claimed > RATIO * max(size, 1):
        raise DataError(
            f"{path} claims to unpack to {claimed / 1e9:,.1f} GB, {claimed // max(size, 1):,} times its "
            "size; no archive of images does: it is not read"
        )
    return book
