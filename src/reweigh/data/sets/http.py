"""Files over HTTP: resumed after a cut, checked before use.

part file   grows as bytes arrive; a second run asks only for what is missing (Range)
md5         of the complete file; a mismatch removes the part file, so nothing bad is kept
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from ...errors import DataError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with (what is going on, how much is done, of how much; 0 when unknown)."""

ATTEMPTS = 3
TIMEOUT = 30.0
_CHUNK = 2**18


def silent(_what: str, _done: int, _total: int) -> None:
    """Progress for callers that show none."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web; `size` in bytes is for the progress bar and the disk check."""

    url: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Official:
    """The publisher's own files."""

    files: tuple[RemoteFile, ...]
    manager: ClassVar[str] = "official"  # how the command line calls this origin

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"official {self.files[0].url.rsplit('/', 1)[0]}/"

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)


def download(file: RemoteFile, part: Path, progress: Progress = silent) -> None:
    """Bring `file` to `part`, going on from what is there; returns once its md5 is right."""
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists() and part.stat().st_size > 0
    failure = ""
    for _ in range(ATTEMPTS):
        if not (part.exists() and part.stat().st_size >= file.size):
            try:
                complete = _transfer(file, part, progress)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.filename is not None and error.errno:
                    raise  # the part file could not be written: the disk, not the network
                failure = reason(error)
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                    if error.code < 500:
                        break  # asking again will not change the answer
                continue
            if not complete:
                failure = f"the connection was cut at {part.stat().st_size:,} bytes"
                continue
        md5 = file_digest(part, "md5")
        if md5 == file.md5:
            return
        part.unlink()
        failure = f"md5 is {md5}, expected {file.md5}"
        if not resumed:
            break
        resumed = False  # the old part may have been of another file: once more, from zero
    kept = part.stat().st_size if part.exists() else 0
    hint = f" ({kept:,} bytes are kept; the same command goes on from there)" if kept else ""
    raise DataError(f"{file.url}: {failure}{hint}")


def _transfer(file: RemoteFile, part: Path, progress: Progress) -> bool:
    """Read from one connection; whether the file arrived to its announced end."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"User-Agent": "reweigh"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if have and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server does not resume: from the beginning
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else 0
        with part.open("ab" if have else "wb") as out:
            progress(file.name, have, total or file.size)
            # A cut shows as an early end, not as an error: only the count tells.
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                have += len(chunk)
                progress(file.name, have, total or file.size)
    return not total or have >= total


def file_digest(path: Path, algorithm: str) -> str:
    """The "md5" or "sha256" of a file, read in pieces."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def reason(error: BaseException) -> str:
    """Why a connection failed, on one line."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    inner = getattr(error, "reason", None) or error
    text = getattr(inner, "strerror", None) or str(inner)
    return " ".join(text.split()) or type(error).__name__
