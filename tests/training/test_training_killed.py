"""A run that is killed, stopped or out of space goes on as if nothing had happened."""

import errno
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh import cli
from reweigh.errors import Interrupted, StorageError
from reweigh.training import fit
from support.runs import assert_same, digits_task, helpers_on_path, tiny, tiny_config

KILLS = 30


def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(tmp_path):
    script = Path(__file__).parents[1] / "support" / "killed_runs.py"
    finished = subprocess.run(
        [sys.executable, script, tmp_path, str(KILLS)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": helpers_on_path()},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    killed = json.loads(finished.stdout)["killed"]
    assert sum(killed.values()) >= KILLS
    assert {"torn write", "torn line", "before rename", "any moment"} <= set(killed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_request_to_stop_saves_and_says_so(number, tmp_path):
    task, config = digits_task(), tiny_config("reweigh+ft", checkpoint_every=0)
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]

    def progress(now):
        if now.step == 7:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="step 7 of 16; run the same again") as stopped:
        fit(tiny, task, config, out=tmp_path, progress=progress)
    assert stopped.value.exit_code == 128 + number
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["000001-main-7.pt"]
    steps = []
    resumed = fit(tiny, task, config, out=tmp_path, progress=lambda now: steps.append(now.step))
    assert steps == list(range(8, 17))
    assert_same(resumed, fit(tiny, task, config))


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    def progress(now):
        if now.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(tiny, digits_task(), tiny_config(), out=tmp_path, progress=progress)


def test_without_a_folder_ctrl_c_is_what_it_always_is():
    def progress(now):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(tiny, digits_task(), tiny_config(), progress=progress)


def test_an_ignored_signal_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fit(tiny, digits_task(), tiny_config(steps=2), out=tmp_path,
            progress=lambda now: os.kill(os.getpid(), signal.SIGINT))  # fmt: skip
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_request_to_stop_passes_between_processes():
    stopped = pickle.loads(pickle.dumps(Interrupted("stopped at step 3", signal.SIGTERM)))
    assert (str(stopped), stopped.exit_code) == ("stopped at step 3", 143)


def test_the_command_line_ends_with_the_signals_code(monkeypatch, capsys):
    from reweigh.cli import commands

    def stopped(*args, **options):
        raise Interrupted("stopped at step 7 of 16; run the same again to go on", signal.SIGTERM)

    monkeypatch.setattr(commands, "root", lambda: type("Root", (), {"main": stopped}))
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train"])
    assert exit_.value.code == 143
    assert (
        capsys.readouterr().err == "reweigh: stopped at step 7 of 16; run the same again to go on\n"
    )


def test_a_full_disk_is_one_error_and_spares_the_last_checkpoint(tmp_path):
    task, config = digits_task(), tiny_config(checkpoint_every=2, keep=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def progress(now):
        if now.step == 7:  # files may no longer grow beyond that
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))

    try:
        with pytest.raises(StorageError, match=r"cannot write .*main-8.pt: File too large") as full:
            fit(tiny, task, config, out=tmp_path, progress=progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(full.value.__cause__, OSError)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["000003-main-6.pt"]
    assert not list(tmp_path.glob(".*"))
    assert_same(fit(tiny, task, config, out=tmp_path), fit(tiny, task, config))


@pytest.mark.parametrize("call", range(1, 9))
def test_a_failing_write_at_any_file_is_that_error(call, tmp_path, monkeypatch):
    task, config = digits_task(), tiny_config(steps=4, checkpoint_every=2, evaluate_every=2)
    real, calls = os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError, match="No space left on device"):
            fit(tiny, task, config, out=tmp_path)
    assert_same(fit(tiny, task, config, out=tmp_path), fit(tiny, task, config))
