"""Every bad input ends in one clear line and exit code 2, and leaves no run behind."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from reweigh import files
from reweigh.app import encoded_rows as encoded_files
from reweigh.cli import main
from support.own_data import images, table, write_tables


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path, rows=60, clean=20)
    return tmp_path


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return stopped.value.code, capsys.readouterr()


TABLE = (
    "--data",
    "rows.csv",
    "--clean",
    "checked.csv",
    "--target",
    "label",
    "--steps",
    "3",
    "--method",
    "reweigh",
)


MARKED = ("--data", "rows.csv", "--target", "label", "--steps", "3")


def refused(capsys, here, *parts, arguments=("train", *TABLE)):
    code, printed = call(capsys, *arguments)
    line = printed.err.strip().splitlines()[-1]
    assert code == 2, printed.err
    assert line.startswith("reweigh: error: ")
    assert "Traceback" not in printed.err
    for part in parts:
        assert part in line
    assert not (here / "reweigh-run" / "summary.json").exists()


def rewrite(here, name, change):
    frame = pd.read_csv(here / name)
    change(frame).to_csv(here / name, index=False)


def test_a_mistyped_column(capsys, here):
    refused(capsys, here, "unknown column 'lable'", "did you mean 'label'?",
            arguments=("train", *TABLE, "--target", "lable"))  # fmt: skip


def test_no_target(capsys, here):
    refused(capsys, here, "--target", "length, weight, town",
            arguments=("train", "--data", "rows.csv", "--clean", "checked.csv"))  # fmt: skip


def test_nothing_that_says_what_is_clean(capsys, here):
    refused(capsys, here, "--clean", "--clean-where",
            arguments=("train", "--data", "rows.csv", "--target", "label"))  # fmt: skip


def test_no_such_file(capsys, here):
    refused(capsys, here, "there is no rowz.csv", arguments=("train", *TABLE, "--data", "rowz.csv"))
    refused(capsys, here, "there is no chk.csv", arguments=("train", *TABLE, "--clean", "chk.csv"))


def test_a_class_only_the_clean_rows_have(capsys, here):
    rewrite(here, "checked.csv", lambda f: f.assign(label=f["label"].replace("eel", "eels")))
    refused(capsys, here, "unknown class 'eels'", "did you mean 'eel'?")


def test_a_class_the_clean_rows_lack_and_the_way_out(capsys, here):
    rewrite(here, "checked.csv", lambda f: f[f["label"] != "eel"])
    refused(capsys, here, "have no clean row: 'eel'", "--only-clean-classes")
    code, printed = call(capsys, "train", *TABLE, "--only-clean-classes", "--out", "other")
    assert code == 0
    assert "rows of classes without a clean row are left out: 'eel'" in printed.err
    assert json.loads((here / "other" / "source.json").read_text())["classes"] == ["cat", "dog"]


def test_a_class_of_the_clean_rows_that_training_lost(capsys, here):
    """The class occurs in the data, but only in rows that are marked as checked."""
    frame, _ = table(60, 0)
    frame["checked"] = (frame["label"] == "eel").astype(int)
    frame.to_csv(here / "rows.csv", index=False)
    refused(capsys, here, "class 'eel' is in the clean rows but not in the training rows",
            arguments=("train", *MARKED, "--clean-where", "checked == 1"))  # fmt: skip


def test_empty_files(capsys, here):
    (here / "rows.csv").write_text("")
    refused(capsys, here, "rows.csv is empty")
    (here / "rows.csv").write_text("length,weight,town,seen_on,label\n")
    refused(capsys, here, "rows.csv has no rows")


def test_one_class_only(capsys, here):
    for name in ("rows.csv", "checked.csv"):
        rewrite(here, name, lambda f: f.assign(label="cat"))
    refused(capsys, here, "only one class, 'cat'")


def test_all_labels_missing(capsys, here):
    rewrite(here, "rows.csv", lambda f: f.assign(label=None))
    refused(capsys, here, "every label in column 'label' is missing")


def test_all_clean_labels_missing(capsys, here):
    rewrite(here, "checked.csv", lambda f: f.assign(label=None))
    refused(capsys, here, "checked.csv", "every label is missing")


def test_constant_columns_are_dropped_with_a_notice(capsys, here):
    for name in ("rows.csv", "checked.csv"):
        rewrite(here, name, lambda f: f.assign(version=3))
    code, printed = call(capsys, "train", *TABLE)
    assert code == 0
    assert "column 'version' has the same value in every row: left out" in printed.err


def test_nothing_but_constant_columns(capsys, here):
    for name in ("rows.csv", "checked.csv"):
        rewrite(here, name, lambda f: pd.DataFrame({"a": 1, "b": "x", "label": f["label"]}))
    refused(capsys, here, "no column is left to learn from")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"PK\x03\x04" + bytes(200), "Excel workbook"),
        (b"PAR1" + bytes(200), "name it .parquet"),
        (bytes(range(256)) * 4, "binary file"),
        ("naïve,label\n1,2\n".encode("latin-1"), "--encoding latin-1"),
        (b"a,b\n1,2\n" * 20000 + b"\xff\xfe,3\n", "--encoding latin-1"),
        (b"a,a\n1,2\n", "two columns called 'a'"),
        (b"label,x\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
    ],
)
def test_files_that_are_not_what_their_name_says(capsys, here, content, part):
    (here / "rows.csv").write_bytes(content)
    refused(capsys, here, "rows.csv", part, arguments=("train", *TABLE, "--target", "b" if b"a,b" in content else "label"))  # fmt: skip


def test_a_truncated_parquet_file(capsys, here):
    table(60, 0)[0].to_parquet(here / "rows.parquet")
    whole = (here / "rows.parquet").read_bytes()
    (here / "rows.parquet").write_bytes(whole[: len(whole) // 2])
    refused(capsys, here, "no Parquet file, or is truncated",
            arguments=("train", *TABLE, "--data", "rows.parquet"))  # fmt: skip


def test_an_unknown_ending(capsys, here):
    (here / "rows.ods").write_bytes(b"PK")
    refused(capsys, here, "unknown ending", arguments=("train", *TABLE, "--data", "rows.ods"))


def test_words_for_a_regression(capsys, here):
    refused(capsys, here, "labels are words", arguments=("train", *TABLE, "--task", "regression"))
    refused(capsys, here, "unknown task 'regresion'", arguments=("train", *TABLE, "--task", "regresion"))  # fmt: skip


def test_a_clean_file_that_lacks_a_column(capsys, here):
    rewrite(here, "checked.csv", lambda f: f.drop(columns="town"))
    refused(capsys, here, "checked.csv", "unknown column 'town'")


def test_training_rows_that_are_all_clean_rows(capsys, here):
    rewrite(here, "checked.csv", lambda f: pd.read_csv(here / "rows.csv"))
    refused(capsys, here, "training rows are left")


def test_confirmed_rows_that_do_not_exist(capsys, here):
    (here / "confirmed.csv").write_text("index,label\n60,cat\n")
    refused(capsys, here, "outside 0 ... 59", arguments=("train", *TABLE, "--also-clean", "confirmed.csv"))  # fmt: skip
    (here / "dropped.csv").write_text("index\n-1\n")
    refused(capsys, here, "outside 0 ... 59", arguments=("train", *TABLE, "--leave-out", "dropped.csv"))  # fmt: skip
    (here / "confirmed.csv").write_text("index,label\n1,cta\n")
    refused(capsys, here, "did you mean 'cat'", arguments=("train", *TABLE, "--also-clean", "confirmed.csv"))  # fmt: skip


def test_too_little_room_is_said_before_encoding(capsys, here, monkeypatch):
    monkeypatch.setattr(
        encoded_files.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10})()
    )
    refused(capsys, here, "make room, or give --out on another disk")


def test_a_disk_that_fills_up(capsys, here, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    refused(capsys, here, "No space left on device")
    assert not list((here / "reweigh-run").rglob("*.npy"))


def test_a_folder_that_is_no_run(capsys, here):
    (here / "reweigh-run").mkdir()
    (here / "reweigh-run" / "diary.txt").write_text("dear diary")
    refused(capsys, here, "has diary.txt and is no run")


@pytest.mark.parametrize("command", ["audit", "predict"])
def test_runs_that_cannot_be_read(capsys, here, command):
    more = ("--data", "rows.csv", "--out", "p.csv") if command == "predict" else ()
    refused(capsys, here, "there is no nowhere", arguments=(command, "nowhere", *more))
    run = here / "old"
    run.mkdir()
    refused(capsys, here, "source.json", arguments=(command, "old", *more))
    (run / "source.json").write_text(json.dumps({"version": 99}))
    refused(capsys, here, "version 99", "train again", arguments=(command, "old", *more))
    (run / "source.json").write_text("{")
    refused(capsys, here, "damaged", arguments=(command, "old", *more))
    (run / "source.json").write_text(json.dumps({"version": 1}))
    refused(capsys, here, "not finished", arguments=(command, "old", *more))


def test_folders_of_images(capsys, here):
    (here / "empty").mkdir()
    images(here / "photos", 20, 0)
    images(here / "checked", 8, 1)
    pictures = ("train", "--data", "photos", "--clean", "checked", "--steps", "2")
    refused(capsys, here, "has no images", arguments=(*pictures, "--data", "empty"))
    Image.new("L", (8, 8)).save(here / "empty" / "loose.png")
    refused(capsys, here, "no folder a class", arguments=(*pictures, "--data", "empty"))
    refused(capsys, here, "for tables", arguments=(*pictures, "--text", "review"))
    refused(capsys, here, "expected a folder", arguments=(*pictures, "--clean", "checked.csv"))
    for path in (here / "photos").rglob("*.png"):
        path.write_bytes(b"broken")
    refused(capsys, here, "can be read", arguments=pictures)


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--steps", "0", "--steps is 0"),
        ("--holdout", "1.5", "--holdout is 1.5"),
        ("--encoder", "somewhere", "--text"),
        ("--ignore", "twon", "did you mean 'town'"),
        ("--encoding", "klingon", "unknown encoding"),
    ],
)
def test_options_out_of_range(capsys, here, option, value, part):
    refused(capsys, here, part, arguments=("train", *TABLE, option, value))


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("os.system", "COLUMN OP VALUE"),
        ("label == cat", "names the target"),
    ],
)
def test_conditions_that_cannot_be(capsys, here, condition, part):
    refused(capsys, here, part, arguments=("train", *MARKED, "--clean-where", condition))


def test_two_ways_of_saying_what_is_checked(capsys, here):
    refused(capsys, here, "--clean and --clean-where both say",
            arguments=("train", *TABLE, "--clean-where", "town == Ulm"))  # fmt: skip


def test_the_target_left_out(capsys, here):
    refused(capsys, here, "--ignore label leaves out", "--target",
            arguments=("train", *TABLE, "--ignore", "label"))  # fmt: skip


def test_a_row_confirmed_twice_with_different_labels(capsys, here):
    (here / "confirmed.csv").write_text("index,label\n3,dog\n5,eel\n3,cat\n")
    refused(capsys, here, "row 3 is confirmed twice, as 'dog' and as 'cat'",
            arguments=("train", *TABLE, "--also-clean", "confirmed.csv"))  # fmt: skip


def test_a_checked_row_twice_with_different_labels(capsys, here):
    def doubled(frame):
        again = frame.iloc[[4]].assign(label="cat" if frame["label"][4] != "cat" else "dog")
        return pd.concat([frame, again])

    rewrite(here, "checked.csv", doubled)
    refused(capsys, here, "a checked row is there twice", "rows 4 and 20")


def test_infinite_numbers_to_predict(capsys, here):
    rewrite(here, "rows.csv", lambda f: f.assign(length=f["length"].where(f.index > 2, np.inf)))
    refused(capsys, here, "3 labels in column 'length' are infinite",
            arguments=("train", *TABLE, "--target", "length"))  # fmt: skip


def test_lines_that_end_with_a_carriage_return(capsys, here):
    content = (here / "rows.csv").read_bytes()
    (here / "rows.csv").write_bytes(content.replace(b"\n", b"\r"))
    refused(capsys, here, "end with a carriage return alone")


@pytest.mark.parametrize("word", ["None", "NA"])
def test_a_class_that_is_called_none(capsys, here, word):
    for name in ("rows.csv", "checked.csv"):
        content = (here / name).read_text().replace("cat", word)
        (here / name).write_text(content)
    code, printed = call(capsys, "train", *TABLE)
    assert code == 0
    assert f"the label {word!r} is taken for a class" in printed.out + printed.err
    source = json.loads((here / "reweigh-run" / "source.json").read_text())
    assert source["classes"] == sorted([word, "dog", "eel"])


def test_none_among_numbers_is_a_missing_label(capsys, here):
    def change(frame):
        numbers = frame["label"].map({"cat": "1", "dog": "2", "eel": "3"})
        return frame.assign(label=numbers.where(frame.index != 2, "NA"))

    rewrite(here, "rows.csv", change)
    rewrite(here, "checked.csv", change)
    code, printed = call(capsys, "train", *TABLE)
    assert code == 0
    assert "data: one row without a label is left out" in printed.out + printed.err


def test_class_folders_called_nothing(capsys, here):
    for name, seed in (("photos", 0), ("clean", 1)):
        images(here / name, 24, seed)
        (here / name / "left").rename(here / name / "NA")
        (here / name / "right").rename(here / name / "nan")
    code, _ = call(capsys, "train", "--data", "photos", "--clean", "clean", "--steps", "2")
    assert code == 0
    source = json.loads((here / "reweigh-run" / "source.json").read_text())
    assert source["classes"] == ["NA", "nan"]


def test_links_to_nothing_and_names_that_are_no_text(capsys, here):
    images(here / "photos", 30, 0)
    images(here / "clean", 12, 1)
    (here / "photos" / "left" / "loop.png").symlink_to(here / "photos" / "left" / "loop.png")
    (here / "photos" / "left" / "gone.png").symlink_to(here / "nowhere.png")
    (here / "photos" / "right" / os.fsdecode(b"caf\xe9.png")).write_bytes(b"broken")
    code, printed = call(capsys, "train", "--data", "photos", "--clean", "clean", "--steps", "2")
    assert code == 0
    shown = printed.out + printed.err
    assert "1 files have names that are not UTF-8" in shown
    assert "caf\\xe9.png" in shown
    listed = (here / "reweigh-run" / "unreadable.txt").read_text().splitlines()
    assert listed == ["left/gone.png", "left/loop.png"]


def test_a_table_whose_name_is_no_text(capsys, here):
    name = os.fsdecode(b"r\xe9ws.csv")
    (here / "rows.csv").rename(here / name)
    arguments = [name if part == "rows.csv" else part for part in TABLE]
    refused(capsys, here, "is not UTF-8; rename", arguments=("train", *arguments))


@pytest.fixture
def run(here, capsys):
    assert call(capsys, "train", *TABLE)[0] == 0
    return here / "reweigh-run"


@pytest.mark.parametrize("name", ["rows.csv", "checked.csv", "link.csv", "hard.csv",
                                  "reweigh-run/confirmed.csv", "reweigh-run/audit.parquet"])  # fmt: skip
def test_no_file_that_was_read_is_written_onto(capsys, here, run, name):
    (here / "link.csv").symlink_to(here / "rows.csv")
    (here / "hard.csv").hardlink_to(here / "checked.csv")
    (run / "confirmed.csv").write_text("index,label\n")
    (here / "new.csv").write_bytes((here / "rows.csv").read_bytes())
    before = (here / name).read_bytes()
    for arguments in (
        ("audit", "reweigh-run", "--out", name),
        ("predict", "reweigh-run", "--data", "new.csv", "--out", name),
    ):
        for force in ((), ("--force",)):
            code, printed = call(capsys, *arguments, *force)
            assert code == 2, printed.err
            assert "choose another name" in printed.err
    assert (here / name).read_bytes() == before


def test_a_prediction_onto_its_own_input(capsys, here, run):
    (here / "new.csv").write_bytes((here / "rows.csv").read_bytes())
    before = (here / "new.csv").read_bytes()
    arguments = ("predict", "reweigh-run", "--data", "new.csv", "--out", "new.csv", "--force")
    code, printed = call(capsys, *arguments)
    assert code == 2
    assert "the file to predict for" in printed.err
    assert (here / "new.csv").read_bytes() == before


def test_another_file_is_replaced_by_force_only(capsys, here, run):
    (here / "mine.csv").write_text("precious")
    for arguments in (
        ("audit", "reweigh-run", "--out", "mine.csv"),
        ("predict", "reweigh-run", "--data", "rows.csv", "--out", "mine.csv"),
    ):
        code, printed = call(capsys, *arguments)
        assert code == 2
        assert "--force" in printed.err
        assert (here / "mine.csv").read_text() == "precious"
        assert call(capsys, *arguments, "--force")[0] == 0
        assert (here / "mine.csv").read_text() != "precious"
        (here / "mine.csv").write_text("precious")
    assert [call(capsys, "audit", "reweigh-run")[0] for _ in range(2)] == [0, 0]  # its own list


def test_a_folder_that_is_not_there(capsys, here, run):
    code, printed = call(capsys, "audit", "reweigh-run", "--out", "nowhere/list.csv")
    assert code == 2
    assert "there is no folder nowhere" in printed.err


def test_a_run_that_can_only_be_looked_at(capsys, here, run, monkeypatch):
    def refuse(path):
        raise files.unwritable(path, OSError(errno.EROFS, "Read-only file system"))

    monkeypatch.setattr("reweigh.exchange.row_files.whole_file", refuse)
    code, printed = call(capsys, "audit", "reweigh-run", "--show", "2")
    assert code == 0
    assert "suspicion" in printed.out
    assert "Read-only file system" in printed.err
    assert call(capsys, "audit", "reweigh-run", "--out", "list.csv")[0] == 2


@pytest.mark.parametrize("name", ["model.safetensors", "audit.parquet", "suspects.parquet"])
@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_a_damaged_run(capsys, here, run, name, how):
    content = (run / name).read_bytes()
    spoilt = {"cut": content[: len(content) // 2], "empty": b"",
              "flipped": content[:-40] + bytes(40)}[how]  # fmt: skip
    (run / name).write_bytes(spoilt)
    for arguments in (
        ("predict", "reweigh-run", "--data", "rows.csv", "--out", "p.csv"),
        ("audit", "reweigh-run"),
        ("report", "reweigh-run"),
        ("review", "reweigh-run", "--export"),
    ):
        code, printed = call(capsys, *arguments)
        assert code in (0, 2)
        assert "Traceback" not in printed.err


def test_a_prediction_into_an_unknown_format(capsys, here):
    call(capsys, "train", *TABLE)
    code, printed = call(capsys, "predict", "reweigh-run", "--data", "rows.csv", "--out", "p.txt")
    assert code == 2
    assert "expected .csv or .parquet" in printed.err
    np.testing.assert_equal((here / "p.txt").exists(), False)
