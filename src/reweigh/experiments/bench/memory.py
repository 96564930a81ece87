"""The memory of a step: bytes of the tensors that its operations made and that are still alive.
And a setting of the process that the measured steps share: it keeps large blocks of memory.

Every operation is seen, in forward and backward and inside the back-ends. After each one, results
with storage of their own are added and what has been freed is subtracted. Not counted: what was there
before the step, and what a kernel uses only inside itself.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


class Alive(TorchDispatchMode):
    """Counts the bytes of live tensors; `peak` is the most there ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak: int = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        given = {s._cdata for s in _storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        self._held = {k: held for k, held in self._held.items() if not held[0].expired()}
        for storage in _storages(out):
            if storage._cdata not in given and storage._cdata not in self._held:
                self._held[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self._held.values()))
        return out


def _storages(values: Any) -> list[Any]:
    return [v.untyped_storage() for v in tree_leaves(values) if isinstance(v, Tensor)]


def peak_bytes(step: Callable[[], Any], *, tries: int = 3) -> int:
    """The most memory a step holds at any moment, in bytes.

    The least of a few steps, because now and then a step also proves itself.
    """
    peaks: list[int] = []
    for _ in range(tries):
        with Alive() as mode:
            step()
        peaks.append(mode.peak)
    return min(peaks)


def keep_large_blocks() -> bool:
    """Ask glibc to keep large blocks that are freed; False where there is no glibc.

    It gives them back to the system and asks for them again, page by page, at the next tensor: a good
    part of the cost of a step on a CPU. Whoever owns the process may change that; a library must not,
    so only the command line calls this. The same for your own script:
    `MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py`.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
