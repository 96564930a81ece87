"""`--engine ray`: the same results as the local engine, also when a worker is killed on the way."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import doomed, pretend

pytest.importorskip("accelerate")
pytest.importorskip("ray")

from test_reproduce_cli import assert_one_line, call
from test_reproduce_grid import Told, lines

from reweigh.errors import SettingError, UnknownNameError
from reweigh.experiments import ray_workers
from reweigh.experiments.catalog import EXPERIMENTS
from reweigh.experiments.experiment import cells, described
from reweigh.experiments.grid import run_grid
from reweigh.experiments.results_folder import FAILURES, LINES, WorkFolder

# Ray leaves processes to end by themselves.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CHOSEN = EXPERIMENTS["mnist-imbalance"]
GRID = cells(CHOSEN, "smoke")
VICTIM = next(filter(doomed.is_victim, GRID))
FEW = [VICTIM, *[cell for cell in GRID if cell != VICTIM][:3]]
ABOUT = described(CHOSEN, "smoke", as_published=False)


@pytest.fixture(scope="module", autouse=True)
def two_workers():
    """A cluster of two workers, as a grid starts one; all tests join it, for it takes its time."""
    before = dict(os.environ)
    path = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(path),  # workers look for our stand-ins
        "RAY_worker_niceness": "0",  # they would wait for everything else on a busy machine
    }
    with ray_workers.cluster(cpus=2):
        yield
    os.environ.clear()
    os.environ.update(before)


def go(out, grid=GRID, *, run=pretend.run, told=None):
    told = told or Told()
    failed = run_grid(grid, ABOUT, out=out, watcher=told, run=run, engine="ray", jobs=None)
    return told, failed


def without_time(found):
    return sorted(
        json.dumps({**line, "seconds": 0}, sort_keys=True) for line in found
    )  # in whatever order cells were finished


def test_real_cells_have_the_numbers_of_the_local_engine(tmp_path):
    # The second method begins with the model of the first, which both share through the work folder.
    grid = cells(CHOSEN, "smoke", methods=["uniform", "uniform+ft"], only={"share": "0.95"})
    assert len(grid) == 2
    run_grid(grid, ABOUT, out=tmp_path / "local", watcher=Told())
    assert run_grid(
        grid, ABOUT, out=tmp_path / "ray", watcher=Told(), jobs=None, engine="ray"
    ) == []  # fmt: skip
    assert without_time(lines(tmp_path / "ray")) == without_time(lines(tmp_path / "local"))
    for cell in grid:
        name = f"cells/{cell.file}.json"
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_a_killed_worker_costs_one_retry_of_its_cell(tmp_path):
    told, failed = go(tmp_path, run=doomed.once)
    assert failed == []
    assert sorted(told.finished) == sorted(cell.key for cell in GRID)
    expected = tmp_path / "local"
    run_grid(GRID, ABOUT, out=expected, watcher=Told(), run=pretend.run)
    assert without_time(lines(tmp_path)) == without_time(lines(expected))
    assert told.ticked == told.steps


def test_a_cell_that_kills_every_worker_is_given_up_and_noted(tmp_path):
    _, failed = go(tmp_path, FEW, run=doomed.always)
    assert failed == [VICTIM]
    assert len(lines(tmp_path)) == 3
    (note,) = [json.loads(x) for x in (tmp_path / FAILURES).read_text().splitlines()]
    assert "its worker was lost twice" in note["error"]
    assert doomed.attempts(tmp_path / ".work", VICTIM) == 2
    told, failed = go(tmp_path, FEW)
    assert failed == []
    assert told.finished == [VICTIM.key]
    assert not (tmp_path / FAILURES).exists()


def test_ctrl_c_stops_the_workers_and_the_same_call_goes_on(tmp_path):
    class Impatient(Told):
        def tick(self, steps):
            super().tick(steps)
            if self.ticked:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, GRID[:3], run=doomed.never_ends, told=Impatient())
    assert not (tmp_path / LINES).exists()
    assert go(tmp_path, GRID[:3])[1] == []  # the workers are free again
    assert len(lines(tmp_path)) == 3


def test_the_command_runs_on_a_cluster(capsys, tmp_path):
    arguments = ["reproduce", "curves", "--scale", "smoke", "--methods", "uniform"]
    arguments += ["--engine", "ray", "--out", str(tmp_path / "results")]
    code, printed, progress = call(capsys, *arguments)
    assert code == 0
    assert "report.html" in printed
    assert progress.count("test accuracy") == 1


def test_a_machine_that_does_not_see_the_folder_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    work = WorkFolder.of(tmp_path / "work")
    assert work.here() == tmp_path / "work"
    (tmp_path / "work" / work.token).unlink()
    assert work.here() == tmp_path / "elsewhere" / f"reweigh-{work.token}"
    assert work.here().is_dir()
    assert WorkFolder.of(tmp_path / "work") == work


def test_without_ray_the_install_command_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    result = call(capsys, "reproduce", "curves", "--scale", "smoke", "--engine", "ray", "--out", str(tmp_path / "new"))  # fmt: skip
    assert_one_line(*result, "--engine ray needs ray", "pip install 'reweigh[ray]'")
    assert not (tmp_path / "new").exists()


def test_impossible_engines_are_refused(tmp_path):
    common = {"out": tmp_path / "new", "watcher": Told()}
    with pytest.raises(UnknownNameError, match="unknown engine 'rays'; did you mean 'ray'"):
        run_grid(GRID, ABOUT, engine="rays", **common)
    with pytest.raises(SettingError, match="expected engine 'ray'"):
        run_grid(GRID, ABOUT, address="auto", **common)
    assert not (tmp_path / "new").exists()
