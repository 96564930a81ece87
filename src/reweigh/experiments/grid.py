"""The runner: every cell of a grid that is not finished yet, several at a time.

A finished cell is a line in the results folder; the same call again runs what is missing, and what
failed. A cell that fails is noted and does not stop the others.
"""

import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..data import load
from ..errors import Interrupted, SettingError, unknown
from ..results import Json
from . import ray_workers
from .cell_training import cell_steps, run_cell
from .experiment import Cell
from .finished_elsewhere import finished_elsewhere
from .method_stages import stages
from .results_folder import ResultsFolder, WorkFolder, alone
from .workers import Stopped, Tick, run_tasks

ENGINES = ("local", "ray")


class CellRunner(Protocol):
    """What trains a cell: `cell_training.run_cell`, or another function of a module."""

    def __call__(self, cell: Cell, *, work: Path, threads: int | None, tick: Tick) -> Json:
        """The cell's `metrics`, `seconds` and `details`."""


class Watcher:
    """Who is told how the grid goes. This one keeps silent."""

    def start(self, cells: Sequence[Cell], finished: Mapping[str, Json], steps: int) -> None:
        """All cells, the lines of those finished before, and the steps of those to come."""

    def tick(self, steps: int) -> None:
        """`steps` more steps are done."""

    def done(self, cell: Cell, line: Json) -> None:
        """A cell is finished."""

    def failed(self, cell: Cell, error: str) -> None:
        """A cell has failed."""


@dataclass(frozen=True)
class CellJob:
    """A cell and how to run it, for a process of its own."""

    cell: Cell
    run: CellRunner
    work: WorkFolder
    threads: int


@dataclass(frozen=True)
class Attempt:
    """What became of a job: a record, or an error in one line and in full."""

    cell: Cell
    record: Json | None
    error: str = ""
    traceback: str = ""


def run_grid(
    cells: Sequence[Cell],
    description: Json,
    *,
    out: Path,
    jobs: int | None = 1,
    threads: int | None = None,
    engine: str = "local",
    address: str | None = None,
    reuse: Sequence[Path] = (),
    watcher: Watcher,
    run: CellRunner = run_cell,
) -> list[Cell]:
    """Run the missing cells into the folder `out`; the cells that failed.

    engine: "local" processes, 2 if `jobs` is None; or "ray", on the cluster at `address`, as many as
    it has room for. There a cell has one thread; here `threads`, or those that `jobs` leave to it.
    reuse: results folders of other experiments, whose cells are taken over where they are the same.
    """
    _check(cells, jobs=jobs, threads=threads, engine=engine, address=address)
    with alone(out):
        results = ResultsFolder(out, description)
        missing = _missing(cells, results)
        for cell, record in finished_elsewhere(missing, results.description, reuse):
            results.add(cell, record)
        missing = _missing(cells, results)
        results.retry(missing)
        watcher.start(cells, results.lines, sum(map(cell_steps, missing)))
        cores = os.cpu_count() or 1
        if engine == "local":
            jobs = min(2, cores) if jobs is None else jobs
            if threads is None and description["scale"] != "smoke":
                threads = max(1, cores // jobs)
        threads = threads or 1
        work = WorkFolder.of(results.work)
        tasks = [CellJob(cell, run, work, threads) for cell in missing]
        failed = []
        try:
            for tried in _attempts(tasks, jobs, engine, address, watcher):
                if tried.record is None:
                    results.fail(tried.cell, tried.error, tried.traceback)
                    watcher.failed(tried.cell, tried.error)
                    failed.append(tried.cell)
                else:
                    watcher.done(tried.cell, results.add(tried.cell, tried.record))
        except Stopped:
            raise KeyboardInterrupt from None
        if not failed and all(cell.key in results.lines for cell in cells):
            shutil.rmtree(results.work, ignore_errors=True)
    return failed


def _attempts(
    tasks: list[CellJob], jobs: int | None, engine: str, address: str | None, watcher: Watcher
) -> Iterator[Attempt]:
    """What becomes of the jobs, as they are finished."""
    if engine == "local":
        threads = tasks[0].threads if tasks else 1
        return run_tasks(attempt_cell, tasks, jobs=jobs or 1, tick=watcher.tick, threads=threads)
    return ray_workers.run_tasks(
        attempt_cell,
        tasks,
        jobs=jobs,
        tick=watcher.tick,
        lost=lambda job, why: Attempt(job.cell, None, why),
        address=address,
    )


def _check(
    cells: Sequence[Cell],
    *,
    jobs: int | None,
    threads: int | None,
    engine: str,
    address: str | None,
) -> None:
    """Refuse what cannot be run, before anything is written."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise SettingError(f"address {address!r} with engine {engine!r}; expected engine 'ray'")
    if engine == "ray":
        ray_workers.require_ray()
    for what, count in (("jobs", jobs), ("threads", threads)):
        if count is not None and count < 1:
            raise SettingError(f"{what} is {count}; expected 1 or more")
    if not cells:
        raise SettingError("no cell is left to run; expected --methods and --only to leave some")
    for name in {cell.setup.recipe.dataset for cell in cells}:
        load(name)  # says how to get it


def attempt_cell(job: CellJob, tick: Tick) -> Attempt:
    """Run a job; whatever goes wrong with it becomes a note."""
    try:
        record = job.run(job.cell, work=job.work.here(), threads=job.threads, tick=tick)
    except Stopped:
        raise
    except Interrupted:
        raise Stopped from None
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Attempt(job.cell, None, line, traceback.format_exc())
    return Attempt(job.cell, record)


def _missing(cells: Sequence[Cell], results: ResultsFolder) -> list[Cell]:
    return [cell for cell in _ordered(cells) if cell.key not in results.lines]


def _ordered(cells: Sequence[Cell]) -> list[Cell]:
    """Cells with few stages first, because others begin with them; then seed by seed."""
    return sorted(cells, key=lambda c: (len(stages(c.method, c.setup.config)), c.seed))
