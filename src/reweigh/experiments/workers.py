"""Independent pieces of work on several processes, with a common count of what is done.

Only the parent answers Ctrl-C. The workers ignore it; the parent asks them to stop by a flag, which
they read whenever they count. So no worker dies with a traceback.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from ..errors import ReweighError
from ..optional import held_interrupts

Task = TypeVar("Task")
Result = TypeVar("Result")
Tick = Callable[[int], None]

POLL_SECONDS = 0.2


class Stopped(Exception):
    """Raised inside a worker that was asked to stop."""


def run_tasks(
    work: Callable[[Task, Tick], Result],
    tasks: Sequence[Task],
    *,
    jobs: int,
    tick: Tick,
    threads: int = 1,
) -> Iterator[Result]:
    """The results of `work(task, tick)` as they are finished, in no particular order.

    `work` is a function of a module, and results can be pickled. With one job all happens in this
    process. One thread each unless said otherwise: small networks gain nothing by more, and results
    then do not depend on the number of cores.
    """
    if jobs <= 1 or len(tasks) <= 1:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for task in tasks:
                yield work(task, tick)
        finally:
            torch.set_num_threads(before)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may deadlock
    done, stop = context.Value("q", 0), context.Event()
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), context, initializer=_start, initargs=(done, stop, threads)
    )
    reported = 0
    try:
        # A process that is starting up would answer Ctrl-C with a traceback.
        with held_interrupts():
            waiting = {pool.submit(work, task, _count) for task in tasks}
        while waiting:
            finished, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
            counted = done.value
            tick(counted - reported)
            reported = counted
            for future in finished:
                yield future.result()
    except BrokenProcessPool:
        raise ReweighError(
            "a worker process was killed, perhaps for want of memory; try --jobs 1"
        ) from None
    finally:
        # A second Ctrl-C here would leave the workers waiting for the pool for ever.
        with held_interrupts():
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


# What a worker process shares with the parent; shared memory can only be given at its start.
_shared: dict[str, Any] = {}


def _start(done: Any, stop: Any, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    _shared.update(done=done, stop=stop)


def _count(steps: int) -> None:
    if _shared["stop"].is_set():
        raise Stopped
    if os.getppid() == 1:  # the parent was killed: nobody waits for the result
        os._exit(1)
    with _shared["done"].get_lock():
        _shared["done"].value += steps
