"""Decisions: on the disk when acknowledged, whole after any end, the last one wins."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")

from reweigh.errors import DataError, ReweighError, StorageError
from reweigh.review.decisions import Decision, Decisions, History, check_shape, read


def check(decision):
    def label(name):
        if name not in ("cat", "dog"):
            raise DataError(f"label {name!r} is not a class")
        return name

    check_shape(decision, rows=100, label=label)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.jsonl"


def opened(path):
    return Decisions(path, check=check)


def filled(path, *decisions):
    decisions_file = opened(path)
    for decision in decisions:
        decisions_file.add(decision)
    decisions_file.close()


TWO = (Decision(3, "keep"), Decision(5, "relabel", "dog"))


def test_a_decision_is_one_line_with_its_time(path):
    filled(path, *TWO)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"at", "index", "action", "label"}] * 2
    assert [(line["index"], line["action"], line["label"]) for line in lines] == [
        (3, "keep", None),
        (5, "relabel", "dog"),
    ]


def test_what_was_written_is_there_again(path):
    filled(path, *TWO)
    again = opened(path)
    assert again.history.standing() == {3: TWO[0], 5: TWO[1]}
    assert again.repaired == 0
    again.close()


def test_the_last_decision_wins_and_undo_brings_back_the_one_before(path):
    log = opened(path)
    for made in (Decision(3, "keep"), Decision(3, "drop"), Decision(4, "skip")):
        log.add(made)
    assert log.history.of(3).action == "drop"
    assert log.history.latest == 4
    log.add(Decision(3, "undo"))
    assert log.history.of(3).action == "keep"
    log.add(Decision(3, "undo"))
    log.add(Decision(3, "undo"))  # nothing left to undo: changes nothing
    log.add(Decision(4, "undo"))
    assert log.history.standing() == {}
    assert log.history.latest is None
    log.close()
    assert read(path, check)[0].standing() == {}


@pytest.mark.parametrize("cut", [1, 2, 20, 37, 60])
def test_a_torn_last_line_is_removed_and_nothing_else(path, cut):
    filled(path, *TWO)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    torn = whole[: first + cut]
    path.write_bytes(torn)
    again = opened(path)
    assert again.repaired == cut
    again.add(Decision(7, "drop"))
    again.close()
    assert set(read(path, check)[0].standing()) == {3, 7}


def test_zeros_that_a_power_cut_leaves_are_removed(path):
    filled(path, *TWO)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 300)
    opened(path).close()
    assert path.read_bytes() == whole


def test_a_last_line_edited_by_hand_without_its_end_is_kept(path):
    filled(path, *TWO)
    whole = path.read_bytes()
    path.write_bytes(whole.rstrip(b"\n"))
    opened(path).close()
    assert path.read_bytes() == whole


def test_reading_alone_changes_nothing(path):
    filled(path, *TWO)
    path.write_bytes(path.read_bytes() + b'{"at": "20')
    torn = path.read_bytes()
    history, whole = read(path, check)
    assert len(history.standing()) == 2
    assert whole == len(torn) - 10
    assert path.read_bytes() == torn


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"index": 3, "action": "burn"}',
                                  '{"index": 100, "action": "keep"}',
                                  '{"index": 3, "action": "relabel", "label": "wolf"}'])  # fmt: skip
def test_a_bad_line_in_the_middle_is_named_and_nothing_is_changed(path, line):
    filled(path, *TWO)
    text = line + "\n" + path.read_text()
    path.write_text(text)
    with pytest.raises(DataError, match=r"line 1: .*mend or remove"):
        opened(path)
    assert path.read_text() == text


@pytest.mark.parametrize("decision", [
    Decision(-1, "keep"), Decision(100, "keep"), Decision(True, "keep"), Decision("3", "keep"),
    Decision(None, "keep"), Decision(3.0, "keep"), Decision([3], "keep"),
    Decision(3, "burn"), Decision(3, None), Decision(3, ["keep"]), Decision(3, "keep", "cat"),
    Decision(3, "relabel"), Decision(3, "relabel", 5), Decision(3, "relabel", "wolf"),
], ids=str)  # fmt: skip
def test_what_is_no_decision_is_refused_and_not_written(path, decision):
    log = opened(path)
    with pytest.raises(ReweighError):
        log.add(decision)
    log.close()
    assert path.read_bytes() == b""


def test_a_second_process_is_refused(path):
    pytest.importorskip("fcntl")
    log = opened(path)
    with pytest.raises(DataError, match="another `reweigh review`"):
        opened(path)
    log.close()
    opened(path).close()


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_is_reported_and_leaves_no_trace(path, monkeypatch, failing):
    filled(path, TWO[0])
    before = path.read_bytes()
    log = opened(path)
    really = os.write

    def half(file, line):
        return really(file, line[: len(line) // 2])

    def fail(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, {"write": half, "fsync": fail}[failing])
    with pytest.raises(StorageError, match="could not be written"):
        log.add(TWO[1])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert log.history.standing() == {3: TWO[0]}
    log.add(TWO[1])
    log.close()
    assert len(read(path, check)[0].standing()) == 2


def test_a_kill_loses_no_acknowledged_decision(path):
    """A process says a number after every decision it wrote, and is killed while it goes on."""
    code = f"""
import itertools, pathlib
from reweigh.review.decisions import Decision, Decisions
log = Decisions(pathlib.Path({str(path)!r}), check=lambda decision: None)
for number in itertools.count():
    log.add(Decision(number, "keep"))
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    told = [int(process.stdout.readline()) for _ in range(25)]
    process.kill()
    told += [int(line) for line in process.stdout.read().split()]
    process.stdout.close()
    process.wait()
    log = Decisions(path, check=lambda decision: None)
    assert set(told) <= set(log.history.standing())
    log.close()


def test_history_agrees_with_replaying_by_hand():
    import random

    draw = random.Random(1)
    history, by_hand = History(), []
    for number in range(400):
        index = draw.randrange(6)
        if draw.random() < 0.4:
            history.add(Decision(index, "undo"))
            places = [place for place, made in enumerate(by_hand) if made.index == index]
            if places:
                del by_hand[places[-1]]
        else:
            made = Decision(index, "relabel", str(number))
            history.add(made)
            by_hand.append(made)
        assert history.standing() == {made.index: made for made in by_hand}
        assert history.latest == (by_hand[-1].index if by_hand else None)
