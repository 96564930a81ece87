"""Checkpoints: everything a run needs to go on as if it had never stopped, whole or not there.

checkpoints/PHASE-STEP.pt    a file each, renamed into place when it is on the disk; the last k kept

Read with weights_only: tensors, numbers, strings, lists and dicts. A file that cannot be read (a
disk's fault; a kill leaves none) is passed over for the one before it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from ..errors import ReweighWarning
from ..files import sweep, whole

State = dict[str, Any]
SUFFIX = ".pt"
VERSION = 1


def save(folder: Path, order: int, phase: str, step: int, state: State, *, keep: int) -> Path:
    """Write `state`, then remove all but the last `keep`. `order` is the phase's number."""
    path = folder / f"{order}-{phase}-{step:09d}{SUFFIX}"
    with whole(path) as stream:
        torch.save({"version": VERSION, "phase": phase, "step": step, **state}, stream)
    for old in _oldest_first(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def newest(folder: Path) -> State | None:
    """The last state that can be read; None if there is none."""
    sweep(folder)
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
    return sorted(folder.glob(f"*{SUFFIX}"))
