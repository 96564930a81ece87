"""What a run was trained on: `source.json` of its folder, checked before anything relies on it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, unknown

KINDS = ("table", "images", "text")
TASKS = ("classes", "regression")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder and the data behind it; `data` is a file, for images a folder."""

    folder: Path
    kind: str
    task: str
    target: str
    classes: tuple[str, ...]
    rows: int
    data: Path
    columns: tuple[str, ...]
    delimiter: str | None
    encoding: str

    @property
    def suspects(self) -> Path:
        """The suspicious rows, most suspicious first."""
        return self.folder / "suspects.parquet"

    @property
    def audit(self) -> Path:
        """Every row, ranked."""
        return self.folder / "audit.parquet"

    @property
    def decisions(self) -> Path:
        """What people decided, in the order they did."""
        return self.folder / "decisions.jsonl"

    def label(self, text: str) -> str:
        """`text` as a label of this run: one of its classes, or a finite number."""
        if self.task == "classes":
            if text not in self.classes:
                raise unknown("label", text, self.classes[:20])
            return text
        if not NUMBER.fullmatch(text.strip()):
            raise DataError(f"label {text[:40]!r} is not a number; expected one, such as 3.5")
        return text.strip()


def open_run(folder: Path) -> Run:
    """The run in `folder`, or an error that says what is the matter with it."""
    path = folder / "source.json"
    try:
        source = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"there is no {path}; expected the folder of a run, as `reweigh train` makes it"
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); run `reweigh train` again") from None
    run = _checked(source, folder, path)
    if not run.suspects.exists():
        raise DataError(
            f"there is no {run.suspects}; finish the run with the same `reweigh train` as before"
        )
    return run


def _checked(source: Any, folder: Path, path: Path) -> Run:
    if not isinstance(source, dict) or source.get("version") != 1:
        version = source.get("version") if isinstance(source, dict) else None
        raise DataError(
            f"{path} has version {version!r}; expected 1: use the reweigh it was made with"
        )

    def field(name: str, kind: type, default: Any = None) -> Any:
        value = source.get(name, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise DataError(f"{path} has {name} = {value!r}; expected {kind.__name__}")
        return value

    kind, task = field("kind", str), field("task", str)
    if kind not in KINDS:
        raise unknown("kind of data", kind, KINDS)
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    classes = tuple(str(name) for name in field("classes", list, []))
    if task == "classes" and not classes:
        raise DataError(f"{path} names no classes; expected at least one for the task 'classes'")
    delimiter = source.get("delimiter")
    return Run(
        folder=folder,
        kind=kind,
        task=task,
        target=source.get("target") or "label",
        classes=classes,
        rows=field("rows", int),
        data=Path(field("data", str)),
        columns=tuple(str(name) for name in source.get("columns") or ()),
        delimiter=delimiter if isinstance(delimiter, str) else None,
        encoding=field("encoding", str, "utf-8"),
    )
