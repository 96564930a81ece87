"""What a result was made with: versions of what it depends on, and the commit of this source."""

import json
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from .. import __version__


@cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "reweigh": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@cache
def commit() -> str | None:
    """The commit of the checkout this package lies in, marked if files were changed; None if unknown."""
    here = Path(__file__).parents[1]
    inside = _git(here, "ls-files", "--error-unmatch", "__init__.py")
    head = _git(here, "rev-parse", "HEAD")
    if inside is None or head is None:
        return _installed_commit()
    return head + ("+changes" if _git(here, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _installed_commit() -> str | None:
    """The commit that pip noted when it installed from a repository."""
    try:
        text = metadata.distribution("reweigh").read_text("direct_url.json") or "{}"
    except metadata.PackageNotFoundError:
        return None
    commit_id: str | None = json.loads(text).get("vcs_info", {}).get("commit_id")
    return commit_id
