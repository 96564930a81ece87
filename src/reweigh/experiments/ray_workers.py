"""The same as `workers.run_tasks`, on the machines of a Ray cluster.

address: of a running cluster ("auto", "ray://host:10001", "host:6379"); None starts one on this machine
for as long as it is needed. A task takes `threads` CPUs, and a GPU where the cluster has any. The loss
of a worker or of a machine costs its tasks one retry; a task lost twice is given up, the others go on.
Results come back to the caller, who alone writes; progress is counted by an actor.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import SettingError
from ..optional import held_interrupts, optional
from .workers import POLL_SECONDS, Result, Task, Tick

TELL_SECONDS = 0.5  # between a worker's messages
PATIENCE_SECONDS = 30.0  # for running tasks to save where they are
RETRIES = 1
FORWARDED = ("REWEIGH_DATA",)
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent home
    "RAY_raylet_start_wait_time_s": "300",  # a busy machine may take its time to start
    "RAY_TQDM_PATCH_PRINT": "0",  # the caller's `print` is left alone
}


def require_ray() -> Any:
    """The library, or an error that names the install command."""
    return optional("ray", package="ray", needed_for="--engine ray", extra="ray")


def run_tasks(
    work: Callable[[Task, Tick], Result],
    tasks: Sequence[Task],
    *,
    jobs: int | None,
    tick: Tick,
    lost: Callable[[Task, str], Result],
    threads: int = 1,
    address: str | None = None,
) -> Iterator[Result]:
    """The results of `work(task, tick)` as they are finished, in no particular order.

    jobs: tasks at a time at most; None: as many as there is room for. lost: what to make of a task
    whose worker was lost twice, and why.
    """
    ray = require_ray()
    if not tasks:
        return
    with cluster(address, cpus=max(threads, os.cpu_count() or 1)):
        tally = ray.remote(num_cpus=0, max_restarts=-1)(Tally).remote()
        gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
        remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=RETRIES)(_call)
        coming, running = list(reversed(tasks)), dict[Any, Task]()
        reported = 0
        try:
            while coming or running:
                while coming and len(running) < (jobs or len(tasks)):
                    task = coming.pop()
                    running[remote.remote(work, task, tally)] = task
                finished, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                counted = _counted(ray, tally, reported)
                tick(counted - reported)
                reported = counted
                for reference in finished:
                    task = running.pop(reference)
                    try:
                        result = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        # `work` returns its failures: this one came before it, perhaps from an import.
                        result = lost(task, f"its worker cannot run it: {_last_line(error)}")
                    except ray.exceptions.RayError as error:
                        result = lost(task, f"its worker was lost twice: {_last_line(error)}")
                    yield result
        finally:
            with held_interrupts():
                _stop(ray, list(running))


class Tally:
    """An actor that counts what is done."""

    def __init__(self) -> None:
        self._done = 0

    def add(self, steps: int) -> None:
        """So many more."""
        self._done += steps

    def done(self) -> int:
        """All so far."""
        return self._done


def _call(work: Callable[[Task, Tick], Result], task: Task, tally: Any) -> Result:
    ray = require_ray()
    waiting, told = 0, time.monotonic()

    def count(steps: int) -> None:
        nonlocal waiting, told
        waiting += steps
        if time.monotonic() - told >= TELL_SECONDS:
            tally.add.remote(waiting)
            waiting, told = 0, time.monotonic()

    result = work(task, count)
    ray.get(tally.add.remote(waiting))
    return result


@contextmanager
def cluster(address: str | None = None, *, cpus: int) -> Iterator[None]:
    """Join the cluster at `address`, or start one of `cpus` here; leave it, or end it.

    One that this process has joined already is used as it is.
    """
    ray = require_ray()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    own = {} if address else {"num_cpus": cpus, "include_dashboard": False}
    settings = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    joined = ray.is_initialized()
    if not joined:
        try:
            with held_interrupts():  # what it starts must not get Ctrl-C
                ray.init(
                    address=address or "local",
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    runtime_env={"env_vars": settings} if settings else None,
                    **own,
                )
        except Exception as error:  # a start that timed out raises a plain Exception
            what = f"no Ray cluster answers at {address}" if address else "Ray does not start here"
            start = "start it with `ray start --head`, or leave --address out"
            raise SettingError(
                f"{what} ({_last_line(error)}); expected a running cluster: "
                f"{start if address else 'try again'}"
            ) from None
    try:
        yield
    finally:
        if not joined:
            ray.shutdown()


def _counted(ray: Any, tally: Any, before: int) -> int:
    try:
        return max(before, int(ray.get(tally.done.remote(), timeout=POLL_SECONDS)))
    except ray.exceptions.RayError:  # busy, or starting again after its machine was lost
        return before


def _stop(ray: Any, running: list[Any]) -> None:
    """Drop what has not begun, and let the others save where they are."""
    if not running:
        return
    for reference in running:
        ray.cancel(reference)  # a running one sees it as Ctrl-C, and `fit` saves where it is
    _, left = ray.wait(running, num_returns=len(running), timeout=PATIENCE_SECONDS)
    for reference in left:
        ray.cancel(reference, force=True)


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip()
