"""One process at a time: those who come later wait, or are told."""

from __future__ import annotations

import multiprocessing

import pytest

from reweigh.errors import SettingError
from reweigh.files import locked

SPAWN = multiprocessing.get_context("spawn")


def _hold(path, ready, leave):
    with locked(path):
        ready.set()
        leave.wait(60)


def _count(path, counter, rounds):
    for _ in range(rounds):
        with locked(path):
            now = int(counter.read_text())
            counter.write_text(str(now + 1))


def test_a_second_process_is_refused_where_an_error_is_given(tmp_path):
    path = tmp_path / ".lock"
    ready, leave = SPAWN.Event(), SPAWN.Event()
    other = SPAWN.Process(target=_hold, args=(path, ready, leave))
    other.start()
    assert ready.wait(60)
    with pytest.raises(SettingError, match="busy"), locked(path, busy=SettingError("busy")):
        pytest.fail("it was let in")
    leave.set()
    other.join()
    with locked(path, busy=SettingError("busy")):
        assert path.exists()
    assert not path.exists()


def test_processes_that_wait_go_in_one_after_the_other(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    others = [
        SPAWN.Process(target=_count, args=(tmp_path / ".lock", counter, 100)) for _ in range(3)
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert counter.read_text() == "300"
    assert [path.name for path in tmp_path.iterdir()] == ["counter"]
