"""Stand-ins for cells that come to a bad end on a worker of a cluster; light, for workers import it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from support import pretend

VICTIM = ("random", 0.95)


def is_victim(cell):
    return (cell.method, dict(cell.setting)["share"]) == VICTIM


def attempts(work, cell):
    return len(list(Path(work).glob(f"{cell.file}.attempt-*")))


def dies(cell, work):
    """As a worker does that the system kills: no exception, no last word."""
    (work / f"{cell.file}.attempt-{os.getpid()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def once(cell, *, work, threads, tick):
    if is_victim(cell) and not attempts(work, cell):
        dies(cell, work)
    return pretend.run(cell, work=work, threads=threads, tick=tick)


def always(cell, *, work, threads, tick):
    if is_victim(cell):
        dies(cell, work)
    return pretend.run(cell, work=work, threads=threads, tick=tick)


def never_ends(cell, *, work, threads, tick):
    while True:
        tick(1)
        time.sleep(0.05)
