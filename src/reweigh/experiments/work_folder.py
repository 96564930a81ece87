"""Where cells keep their stages while a grid runs.

    RESULTS/.work                on the caller's machine, and on all that share its disk
    TEMPORARY/reweigh-TOKEN      on any other: stages are shared among the cells of that machine alone

A stage that two such machines need is trained on both, to the same bits: only time is lost.
"""

from __future__ import annotations

import hashlib
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkFolder:
    """A folder of the caller; the file `token` in it tells it from others of the same name."""

    folder: Path
    token: str

    @classmethod
    def of(cls, folder: Path) -> WorkFolder:
        """Mark the folder; the same one has the same token, so that a second call goes on."""
        folder = folder.resolve()
        token = hashlib.sha256(f"{platform.node()} {folder}".encode()).hexdigest()[:12]
        (folder / token).touch()
        return cls(folder, token)

    def here(self) -> Path:
        """The folder, or this machine's own."""
        if (self.folder / self.token).exists():
            return self.folder
        local = Path(tempfile.gettempdir()) / f"reweigh-{self.token}"
        local.mkdir(exist_ok=True)
        return local
