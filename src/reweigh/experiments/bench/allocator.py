"""Large blocks that are kept, for processes of our own.

glibc hands large blocks back to the system when they are freed and asks for them anew, page by page,
at the next tensor: a good part of the price of a step on a CPU. Whoever owns the process may tell it
not to; a library must not, so this is called by the command line only. The same for your own script:
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
