"""Every error that this library raises on purpose, and the suggestion for a misspelt name.

Each message says three things: what arrived, what was expected, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ReweighError(Exception):
    """The base of all errors a user can act on; the command line prints one line and exits with 2."""


class UnknownNameError(ReweighError, ValueError):
    """A name that is not in the table it was looked up in."""


class SettingError(ReweighError, ValueError):
    """An option outside its range, or options that contradict each other."""


class BatchError(ReweighError, ValueError):
    """A batch that is empty, ragged, or on the wrong device."""


class LossShapeError(ReweighError, ValueError):
    """A loss that does not return one value per example."""


class NonFiniteError(ReweighError, FloatingPointError):
    """NaN or infinity among the per-example losses or in the clean gradient."""


class DivergedError(NonFiniteError):
    """A run whose loss or parameters are no longer finite; its last good checkpoint is kept."""


class NoGradientError(ReweighError, RuntimeError):
    """Nothing to differentiate: no trainable parameter, or a loss that does not depend on any."""


class UnsupportedModelError(ReweighError, RuntimeError):
    """A back-end that cannot be exact for this model; the message names the part and the fix."""


class LostProcessError(ReweighError, RuntimeError):
    """A process that no longer answers the other processes that share the batch."""


class DataError(ReweighError):
    """A data file that is missing, truncated, altered, or not what its name says."""


class StorageError(ReweighError, OSError):
    """A file that could not be written: a full disk, a quota, a read-only folder."""


class Interrupted(ReweighError):
    """A run that Ctrl-C or SIGTERM asked to stop, and that has saved a checkpoint."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal

    def __reduce__(self) -> tuple[type[Interrupted], tuple[str, int]]:
        return type(self), (str(self), self.signal)  # for pickling, from one process to another

    @property
    def exit_code(self) -> int:
        """The exit code of a process that the signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self.signal


class MissingExtraError(ReweighError, ImportError):
    """An optional dependency that is not installed."""


class TorchVersionError(ReweighError, ImportError):
    """A PyTorch that is too old for this library."""


class ReweighWarning(UserWarning):
    """Something worth a look that is not an error."""


def unknown(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a `name` that is not one of `known`; suggests the nearest of them."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"unknown {kind} {name!r}; {hint}known: {', '.join(names)}")
