"""What people decided: `decisions.jsonl`, one line per decision, written at once and never rewritten.

    {"at": "2031-05-04T10:11:12+00:00", "index": 17, "action": "relabel", "label": "dog"}

Decisions about a row form a stack: the last one stands, and `undo` takes it off again. A decision is
confirmed to the person once its line has reached the disk (fsync), so it survives a kill or a power cut.
Such an end can leave a torn last line; it was never confirmed, and opening the file removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import DataError, ReweighError, SettingError, StorageError, unknown
from ..files import locked, sync_folder

ACTIONS = ("keep", "relabel", "drop", "skip")
UNDO = "undo"


@dataclass(frozen=True)
class Decision:
    """What was decided about a row; `label` is the new one of a relabelled row, else None.

    `group` is a name that all decisions made in one go share; None if the row was decided by itself.
    """

    index: int
    action: str
    label: str | None = None
    group: str | None = None

    def says(self, other: Decision | None) -> bool:
        """Whether another decision says the same of the row, whoever made it with which others."""
        return other is not None and replace(self, group=other.group) == other


Check = Callable[[Decision], None]
"""Raises a ReweighError if a decision cannot be one of this run."""


class History:
    """Decisions in their order, and what stands after all undoing."""

    def __init__(self) -> None:
        self._stacks: dict[int, list[Decision]] = {}
        self._order: list[int] = []

    def add(self, decision: Decision) -> None:
        """Put a decision on top, or take one off if it says undo."""
        if decision.action != UNDO:
            self._stacks.setdefault(decision.index, []).append(decision)
            self._order.append(decision.index)
        elif stack := self._stacks.get(decision.index):
            stack.pop()
            latest = len(self._order) - 1 - self._order[::-1].index(decision.index)
            del self._order[latest]

    def of(self, index: int) -> Decision | None:
        """The decision that stands for a row."""
        stack = self._stacks.get(index)
        return stack[-1] if stack else None

    @property
    def latest(self) -> int | None:
        """The row decided last, of those not undone."""
        return self._order[-1] if self._order else None

    def of_group(self, group: str) -> list[int]:
        """The rows whose standing decision is one of a group, in their order."""
        return [index for index, made in self.standing().items() if made.group == group]

    def standing(self) -> Mapping[int, Decision]:
        """What stands, by row; a copy, in the order of the rows."""
        return {index: stack[-1] for index, stack in sorted(self._stacks.items()) if stack}


def read(path: Path, check: Check) -> tuple[History, int]:
    """The history in `path`, and how many bytes of it are whole lines. Changes nothing."""
    history, whole = History(), 0
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return history, whole
    with stream:
        for number, line in enumerate(stream, start=1):
            try:
                history.add(_parsed(line, check))
            except ReweighError as error:
                if not line.endswith(b"\n"):
                    break  # the torn end of a write that was never acknowledged
                raise DataError(
                    f"{path}, line {number}: {error}; mend or remove that line, "
                    "or move the file away to start afresh"
                ) from None
            whole += len(line)
    return history, whole


def _parsed(line: bytes, check: Check) -> Decision:
    try:
        record = json.loads(line)
    except ValueError:
        raise DataError("not JSON; expected a decision") from None
    if not isinstance(record, dict):
        raise DataError(f"{record!r} is not an object; expected a decision")
    decision = Decision(*(record.get(each.name) for each in fields(Decision)))  # type: ignore[arg-type]
    check(decision)
    return decision


def check_shape(decision: Decision, *, rows: int, label: Callable[[str], str]) -> None:
    """A row in 0 ... rows-1, a known action, a label exactly where one belongs."""
    index, action, name = decision.index, decision.action, decision.label
    if not isinstance(decision.group, str | None):
        raise SettingError(f"group {decision.group!r} is no name; expected one, or none")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < rows:
        raise SettingError(f"index {index!r} is out of range; expected 0 to {rows - 1}")
    if action not in (*ACTIONS, UNDO):
        raise unknown("action", action, (*ACTIONS, UNDO))
    if action == "relabel":
        if not isinstance(name, str):
            raise SettingError(f"relabel came with label {name!r}; expected the new label")
        label(name)
    elif name is not None:
        raise SettingError(f"{action} came with label {name!r}; expected none")


def _record(decision: Decision) -> dict[str, Any]:
    record = asdict(decision)
    if decision.group is None:
        del record["group"]
    return record


class Decisions:
    """The file, open for appending by this process alone."""

    def __init__(self, path: Path, *, check: Check) -> None:
        self._check = check
        self.path = path
        # A second process could not know of our decisions.
        busy = DataError(
            f"{path} is open in another `reweigh review`; use its page, or end it first"
        )
        with ExitStack() as opening:
            opening.enter_context(locked(path.with_name(f".{path.name}.lock"), busy=busy))
            fresh = not path.exists()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            opening.callback(os.close, self._file)
            self.history, self._size = read(path, check)
            self.repaired = os.fstat(self._file).st_size - self._size
            """How many bytes of a torn last line were removed."""
            if self.repaired:
                os.ftruncate(self._file, self._size)
            elif self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
                self._size += os.write(self._file, b"\n")  # whole but for its end: edited by hand
            os.fsync(self._file)
            if fresh:
                sync_folder(path.parent)
            self._open = opening.pop_all()

    def add(self, *decisions: Decision) -> None:
        """Write decisions; on return all are on the disk. A failed write leaves no trace."""
        for decision in decisions:
            self._check(decision)
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        lines = [json.dumps({"at": at, **_record(decision)}) + "\n" for decision in decisions]
        content = "".join(lines).encode()
        try:
            rest = memoryview(content)
            while rest:  # the system may take a part of many
                written = os.write(self._file, rest)
                if not written:
                    raise OSError(f"{len(rest)} of {len(content)} bytes were not written")
                rest = rest[written:]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise StorageError(
                f"the decision could not be written to {self.path}: {error.strerror or error}; "
                "expected room for a line: free some space and decide again"
            ) from None
        self._size += len(content)
        for decision in decisions:
            self.history.add(decision)

    def close(self) -> None:
        """Close the file and free its lock."""
        self._open.close()
