"""Checkpoints: everything a run needs to continue as if it had never stopped.

    checkpoints/NUMBER-PHASE-STEP.pt    one file per checkpoint

A file is renamed into place after it is on the disk, so a file that exists is complete. The last
`keep` files are kept. They are read with `weights_only`: tensors, numbers, strings, lists and dicts.
If the newest file cannot be read (the disk is damaged; a killed process leaves no broken file), the
one before it is used.
"""

import io
import warnings
from pathlib import Path
from typing import Any

import torch

from ..errors import ReweighWarning
from ..files import write_whole

State = dict[str, Any]
SUFFIX = ".pt"
VERSION = 1


def save(folder: Path, phase: str, step: int, state: State, *, keep: int) -> Path:
    """Write `state`, then remove all but the last `keep`."""
    before = _oldest_first(folder)
    number = 1 + _number(before[-1]) if before else 1
    path = folder / f"{number:06d}-{phase}-{step}{SUFFIX}"
    # In memory first: a full disk then fails in one place, as an error of the operating system's.
    stream = io.BytesIO()
    torch.save({"version": VERSION, "phase": phase, "step": step, **state}, stream)
    write_whole(path, stream.getbuffer())
    for old in [*before, path][:-keep]:
        old.unlink(missing_ok=True)
    return path


def newest(folder: Path) -> State | None:
    """The last state that can be read; None if there is none."""
    for path in reversed(_oldest_first(folder)):
        try:
            state: State = torch.load(path, map_location="cpu", weights_only=True)
            if state["version"] == VERSION:
                return state
            reason = f"it is of version {state['version']}"
        except Exception as error:  # whatever a damaged archive makes the reader raise
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        warnings.warn(
            f"{path} cannot be read ({reason}); going on from the one before it",
            ReweighWarning,
            stacklevel=2,
        )
    return None


def _oldest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"), key=_number)


def _number(path: Path) -> int:
    head = path.name.split("-")[0]
    return int(head) if head.isdigit() else 0
