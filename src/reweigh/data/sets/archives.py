"""Archives opened with suspicion: plain files only, and only inside the target folder.

tar (.gz, .xz, .bz2), zip (wheels too) and Debian's .deb. An archive is refused, before anything is
written, if one member has an absolute path, climbs out with `..`, or is a link or a device: honest data
archives have none of these. The unpacked size is limited, against compression bombs.
"""

import io
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from ...errors import DataError
from ...text import first_line

LARGEST = 4 * 2**30
"""Unpacked bytes accepted from one archive; the largest here, MNIST as text, has 128 MB."""

_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError),
    *(RuntimeError, ValueError, OverflowError),  # encrypted or unknown methods, impossible headers
)


def is_archive(path: Path) -> bool:
    """Whether the name is one `unpack` understands."""
    name = path.name.lower()
    return name.endswith((".tar", ".tgz", ".zip", ".whl", ".deb")) or ".tar." in name


def unpack(path: Path, into: Path) -> None:
    """Unpack the files of an archive below `into`."""
    try:
        if path.suffix.lower() in (".zip", ".whl"):
            with zipfile.ZipFile(path) as archive:
                _unpack_zip(archive, path, into)
        else:
            payload = _deb_payload(path) if path.suffix.lower() == ".deb" else None
            with tarfile.open(path, fileobj=payload) as tar:
                _unpack_tar(tar, path, into)
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk, not the archive
        why = first_line(error).rstrip(":")
        raise DataError(
            f"{path} is truncated or not an archive ({why}); fetch or copy it again"
        ) from error


def _unpack_tar(tar: tarfile.TarFile, path: Path, into: Path) -> None:
    members = tar.getmembers()
    for member in members:
        if not (member.isreg() or member.isdir()):
            raise _refused(path, member.name, "a link or a device")
        _inside(path, member.name)
    _check_size(path, sum(member.size for member in members))
    for member in members:
        source = tar.extractfile(member) if member.isreg() else None
        if source is not None:
            _write(source, into / _inside(path, member.name))


def _unpack_zip(archive: zipfile.ZipFile, path: Path, into: Path) -> None:
    members = archive.infolist()
    for member in members:
        mode = member.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(path, member.filename, "a link or a device")
        _inside(path, member.filename)
    _check_size(path, sum(member.file_size for member in members))
    for member in members:
        if not member.is_dir():
            with archive.open(member) as source:
                _write(source, into / _inside(path, member.filename))


def _deb_payload(path: Path) -> IO[bytes]:
    """The data.tar.* of a .deb: an `ar` file, a 60-byte header before each even-padded member."""
    with path.open("rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise EOFError("no ar signature")
        while len(header := file.read(60)) == 60:
            name, size = header[:16].decode("ascii", "replace").strip(), header[48:58].strip()
            if not size.isdigit():
                raise EOFError("bad member header")
            content = file.read(int(size) + int(size) % 2)
            if name.rstrip("/").startswith("data.tar"):
                return io.BytesIO(content)
    raise EOFError("no data.tar member")


def _inside(path: Path, name: str) -> Path:
    """`name` as a relative path that stays inside; raises on one that does not."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or any(":" in part for part in parts):
        raise _refused(path, name, "outside the target folder")
    return Path(*parts) if parts else Path(".")


def _refused(path: Path, member: str, why: str) -> DataError:
    return DataError(
        f"{path} holds {member!r}, which is {why}; expected plain files inside one folder, "
        "so nothing of it was unpacked"
    )


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST:
        raise DataError(
            f"{path} would unpack to {size:,} bytes; expected at most {LARGEST:,}: "
            "this is not one of the known data sets"
        )


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 2**20)
