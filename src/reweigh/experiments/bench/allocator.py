"""Keep large blocks of memory in the process, where the process is our own.

glibc gives large blocks back to the system when they are freed and asks for them again, page by page,
at the next tensor: a good part of the cost of a step on a CPU. Whoever owns the process may change
that; a library must not, so only the command line calls this. The same for your own script:
`MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483647 python train.py`.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def keep_large_blocks() -> bool:
    """Ask glibc to keep what is freed; False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 2**30) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))
