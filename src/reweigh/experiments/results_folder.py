"""The results folder of one experiment at one scale, as the runner writes it (see reweigh/results.py).

Besides, it has a folder `.work` with models and checkpoints, which may be removed when the grid is
finished. A line that a kill has cut is removed when the folder is opened. A folder of another
experiment, scale, configuration or version is refused: its numbers would not be comparable.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..errors import DataError, SettingError
from ..files import locked, writable_folder, write_whole
from ..results import DESCRIPTION, DETAILS, FAILURES, LINES, Json, cell_key, read_lines
from .experiment import Cell
from .provenance import commit, versions

WORK = ".work"
COMPARED = ("experiment", "scale", "as_published", "version", "digest")


class ResultsFolder:
    """An open results folder; `lines` has what is finished, by the cell's key."""

    def __init__(self, folder: Path, description: Json) -> None:
        self.folder = writable_folder(folder)
        self.description = {**description, "version": __version__}
        _claim(folder, self.description)
        (folder / DETAILS).mkdir(exist_ok=True)
        self.work = folder / WORK
        self.work.mkdir(exist_ok=True)
        _mend(folder / LINES)
        self.lines = {cell_key(line): line for line in read_lines(folder / LINES)}
        self.failures: dict[str, Json] = {}

    def add(self, cell: Cell, record: Json) -> Json:
        """Keep a finished cell; the line that was written."""
        details = record.pop("details")
        write_whole(self.folder / DETAILS / f"{cell.file}.json", json.dumps(details) + "\n")
        line = {**_line(cell, record), "details": f"{DETAILS}/{cell.file}.json"}
        _append(self.folder / LINES, line)
        self.lines[cell.key] = line
        return line

    def fail(self, cell: Cell, error: str, traceback: str) -> None:
        """Note that a cell failed."""
        self.failures[cell.key] = _line(cell, {"error": error, "traceback": traceback})
        self._write_failures()

    def retry(self, cells: list[Cell]) -> None:
        """Forget earlier failures of `cells`: they are being tried again."""
        tried = {cell.key for cell in cells}
        earlier = {cell_key(line): line for line in read_lines(self.folder / FAILURES)}
        self.failures = {key: line for key, line in earlier.items() if key not in tried}
        self._write_failures()

    def _write_failures(self) -> None:
        path = self.folder / FAILURES
        if self.failures:
            write_whole(path, "".join(map(_text, self.failures.values())))
        else:
            path.unlink(missing_ok=True)


def _line(cell: Cell, outcome: Json) -> Json:
    """A line of a file: which cell, what came of it, and what it was made with."""
    return {
        "experiment": cell.experiment,
        "method": cell.method,
        "setting": dict(cell.setting),
        "seed": cell.seed,
        "versions": versions(),
        "commit": commit(),
        **outcome,  # one that was taken over has versions and a commit of its own
    }


def alone(folder: Path) -> AbstractContextManager[None]:
    """Refuse to work in a folder that another process works in."""
    busy = SettingError(
        f"another process is at work in {folder}; wait for it, or choose another --out"
    )
    return locked(writable_folder(folder) / ".lock", busy=busy)


def _claim(folder: Path, description: Json) -> None:
    path = folder / DESCRIPTION
    if not path.exists():
        if (folder / LINES).exists():
            raise DataError(f"{folder} has {LINES} but no {DESCRIPTION}; choose another --out")
        write_whole(path, json.dumps(description, indent=1) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        theirs = {name: before[name] for name in COMPARED}
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} cannot be read; expected what `reweigh reproduce` writes: choose another --out"
        ) from None
    different = [
        f"{name} {theirs[name]} there, {description[name]} here"
        for name in COMPARED
        if theirs[name] != description[name]
    ]
    if different:
        raise SettingError(
            f"{folder} holds other results ({'; '.join(different)}), which do not mix; "
            "choose another --out, or remove the folder"
        )
    if before != description:  # words for the report were changed since
        write_whole(path, json.dumps(description, indent=1) + "\n")


def _mend(path: Path) -> None:
    """Cut off a last line without its end: the process was killed while it wrote it."""
    content = path.read_bytes() if path.exists() else b""
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)


def _append(path: Path, line: Json) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, _text(line).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(line: Json) -> str:
    return json.dumps(line) + "\n"


@dataclass(frozen=True)
class WorkFolder:
    """Where cells keep their stages while a grid runs.

        RESULTS/.work              on the caller's machine, and on all that share its disk
        TEMPORARY/reweigh-TOKEN    on any other: only the cells of that machine share stages

    A stage that two such machines need is trained on both, to the same bits: only time is lost.
    `token` is a file in the folder; it tells the folder from others of the same name.
    """

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
