"""Hundreds of bad inputs: each ends well or in one clear line; no traceback, no hang, no file lost."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import signal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reweigh.cli import main
from support.own_data import write_tables

SECONDS = 120
QUICK = ("--steps", "2", "--hidden", "4", "--threads", "1", "--method", "reweigh")
ROLES = ("data", "clean", "test", "also-clean", "leave-out")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Sound files to spoil, by role, as CSV."""
    folder = tmp_path_factory.mktemp("sound")
    write_tables(folder, rows=60, clean=20)
    data = (folder / "rows.csv").read_bytes()
    clean = (folder / "checked.csv").read_bytes()
    labels = pd.read_csv(folder / "rows.csv")["label"]
    confirmed = "index,label\n" + "".join(f"{i},{labels[i]}\n" for i in (3, 5, 8))
    return {
        "data": data,
        "clean": clean,
        "test": clean,
        "also-clean": confirmed.encode(),
        "leave-out": b"index\n1\n2\n",
    }


def run(capsys, *arguments) -> tuple[int, str]:
    """The exit code and the last line of the errors; an alarm ends what hangs."""

    def late(*_):
        raise AssertionError(f"still not done after {SECONDS} seconds: {arguments}")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return stopped.value.code, (printed.err.strip().splitlines() or [""])[-1]


def arguments(files) -> list[str]:
    named = [part for role, path in files.items() for part in (f"--{role}", str(path))]
    return ["train", *named, "--target", "label", *QUICK, "--out", "run"]


def digests(folder) -> dict[str, str]:
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _without_column(data: bytes) -> bytes:
    return b"".join(line.partition(b",")[2] or b"\n" for line in lines(data))


def _ragged(data: bytes) -> bytes:
    rows = lines(data)
    rows[min(4, len(rows) - 1)] = rows[min(4, len(rows) - 1)].rstrip() + b",x,y\n"
    return b"".join(rows)


def _scrambled(data: bytes) -> bytes:
    draw, content = random.Random(3), bytearray(data)
    for _ in range(40):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)


SPOILT = {
    "empty": lambda b: b"",
    "blank lines": lambda b: b"\n\n\n\n",
    "header only": lambda b: lines(b)[0],
    "no header": lambda b: b"".join(lines(b)[1:]),
    "one row": lambda b: b"".join(lines(b)[:2]),
    "truncated": lambda b: b[: len(b) // 2 + 1],
    "nul bytes": lambda b: b[:40] + b"\0" * 10 + b[40:],
    "all nul": lambda b: b"\0" * len(b),
    "random bytes": lambda b: random.Random(1).randbytes(len(b)),
    "scrambled": _scrambled,
    "utf-16": lambda b: b.decode().encode("utf-16"),
    "utf-16-le": lambda b: b.decode().encode("utf-16-le"),
    "bom": lambda b: b"\xef\xbb\xbf" + b,
    "latin-1": lambda b: b.replace(b"a", "ä".encode("latin-1")),
    "carriage returns": lambda b: b.replace(b"\n", b"\r"),
    "windows line ends": lambda b: b.replace(b"\n", b"\r\n"),
    "no last line end": lambda b: b.rstrip(),
    "quote never closed": lambda b: b + b'"open,1,2\n',
    "quotes everywhere": lambda b: b.replace(b",", b'","'),
    "a column short": _without_column,
    "ragged": _ragged,
    "semicolons": lambda b: b.replace(b",", b";"),
    "tabs": lambda b: b.replace(b",", b"\t"),
    "pipes": lambda b: b.replace(b",", b"|"),
    "columns twice": lambda b: b"".join(line.rstrip() + b"," + line for line in lines(b)),
    "long line": lambda b: b + b"x" * 3_000_000 + b"\n",
    "rows twice": lambda b: b + b"".join(lines(b)[1:]),
    "spaces": lambda b: b.replace(b",", b" , "),
    "digits only": lambda b: b"1,2,3\n4,5,6\n",
    "one word": lambda b: b"hello",
    "formulas": lambda b: b.replace(b"\n", b"\n=1+1,", 3),
    "zip magic": lambda b: b"PK\x03\x04" + b,
    "parquet magic": lambda b: b"PAR1" + b + b"PAR1",
    "gzip under another name": gzip.compress,
    "emoji": lambda b: b.replace(b"e", "🙂".encode()),
    "infinities": lambda b: b.replace(b"1", b"inf"),
    "not numbers": lambda b: b.replace(b"1", b"nan"),
    "minus": lambda b: b.replace(b"\n", b"\n-", 6),
    "huge numbers": lambda b: b.replace(b"1", b"1e308"),
    "json": lambda b: b'[{"a": 1}, {"a": 2}]',
}


def as_table(content: bytes) -> pa.Table:
    import io

    return pa.Table.from_pandas(pd.read_csv(io.BytesIO(content)), preserve_index=False)


def as_json_lines(content: bytes) -> bytes:
    import io

    text = pd.read_csv(io.BytesIO(content)).to_json(orient="records", lines=True)
    return text.encode()


def _typed(kind: str):
    """The table with its first column of a type that is no number and no word."""

    def change(table: pa.Table) -> pa.Table:
        rows = table.num_rows
        made = {
            "lists": pa.array([[1, 2]] * rows),
            "empty lists": pa.array([[]] * rows, pa.list_(pa.int64())),
            "records": pa.array([{"bytes": b"x", "path": "p"}] * rows),
            "maps": pa.array([[("a", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
            "bytes": pa.array([b"\xff\x00"] * rows),
            "large bytes": pa.array([b"\xff\x00"] * rows, pa.large_binary()),
            "fixed bytes": pa.array([b"ab"] * rows, pa.binary(2)),
            "times": pa.array(range(rows), pa.time64("us")),
            "short times": pa.array(range(rows), pa.time32("s")),
            "durations": pa.array(range(rows), pa.duration("ms")),
            "decimals": pa.array([f"{k}.5" for k in range(rows)]).cast(pa.decimal128(10, 2)),
            "nulls": pa.nulls(rows),
            "dictionaries": pa.array([f"w{k % 3}" for k in range(rows)]).dictionary_encode(),
            "half floats": pa.array(range(rows), pa.float32()).cast(pa.float16()),
            "timestamps": pa.array(range(rows), pa.timestamp("ns", tz="UTC")),
            "dates": pa.array(range(rows), pa.date32()),
        }[kind]
        return table.set_column(0, table.schema.names[0], made)

    return change


TYPES = (
    "lists", "empty lists", "records", "maps", "bytes", "large bytes", "fixed bytes", "times",
    "short times", "durations", "decimals", "nulls", "dictionaries", "half floats", "timestamps",
    "dates",
)  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_table(capsys, tmp_path, monkeypatch, tables, role, how):
    monkeypatch.chdir(tmp_path)
    files = {name: tmp_path / f"{name}.csv" for name in {"data", "clean", role}}
    for name, path in files.items():
        path.write_bytes(SPOILT[how](tables[name]) if name == role else tables[name])
    before = digests(tmp_path)
    code, line = run(capsys, *arguments(files))
    assert code in (0, 2)
    assert code == 0 or line.startswith("reweigh: error: ")
    assert digests(tmp_path) == before


JSON_SPOILT = {
    "sound": lambda b: b,
    "a list": lambda b: b"[" + b",".join(b.splitlines()) + b"]",
    "a number a line": lambda b: b"1\n2\n3\n",
    "deep": lambda b: b'{"a":' + b"[" * 50_000,
    "no comma": lambda b: b.replace(b",", b" "),
    "single quotes": lambda b: b.replace(b'"', b"'"),
    "nested labels": lambda b: b.replace(b'"cat"', b'["cat"]'),
    "some labels null": lambda b: b.replace(b'"cat"', b"null", 3),
    "no labels": lambda b: b.replace(b'"label"', b'"other"'),
    "numbers for labels": lambda b: b.replace(b'"cat"', b"1"),
    "half characters": lambda b: b.replace(b'"cat"', b'"c\\ud800"'),
    "infinite": lambda b: b.replace(b"null", b"Infinity"),
    "other keys each line": lambda b: b"".join(
        line.replace(b'"town"', b'"town%d"' % k) for k, line in enumerate(lines(b))
    ),
    **{name: SPOILT[name] for name in (
        "empty", "blank lines", "truncated", "nul bytes", "all nul", "random bytes", "scrambled",
        "utf-16", "bom", "latin-1", "carriage returns", "windows line ends", "no last line end",
        "long line", "rows twice", "one word", "zip magic", "parquet magic", "emoji",
        "gzip under another name",
    )},
}  # fmt: skip


@pytest.mark.parametrize("role", ["data", "clean"])
@pytest.mark.parametrize("how", JSON_SPOILT)
def test_spoilt_json_lines(capsys, tmp_path, monkeypatch, tables, role, how):
    monkeypatch.chdir(tmp_path)
    files = {name: tmp_path / f"{name}.jsonl" for name in ("data", "clean")}
    for name, path in files.items():
        content = as_json_lines(tables[name])
        path.write_bytes(JSON_SPOILT[how](content) if name == role else content)
    before = digests(tmp_path)
    code, line = run(capsys, *arguments(files))
    assert code in (0, 2)
    assert code == 0 or line.startswith("reweigh: error: ")
    assert digests(tmp_path) == before
    if how == "sound":
        assert code == 0, line
        predict = ("predict", "run", "--data", files["data"], "--out", "p.csv")
        for command in (predict, ("audit", "run", "--show", "2"), ("review", "run", "--export")):
            code, line = run(capsys, *command)
            assert code == 0, line
        assert (tmp_path / "run" / "corrected.jsonl").read_bytes() == files["data"].read_bytes()


@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_a_parquet_column_of_any_type(capsys, tmp_path, monkeypatch, tables, kind, target):
    """Whole: from training to predictions; as the target: trained on, or refused in one line."""
    monkeypatch.chdir(tmp_path)
    files = {}
    for role in ("data", "clean"):
        table = _typed(kind)(as_table(tables[role]))
        files[role] = tmp_path / f"{role}.parquet"
        pq.write_table(table, files[role])
    asked = arguments(files)
    if target:
        asked[asked.index("label")] = as_table(tables["data"]).schema.names[0]
    code, line = run(capsys, *asked)
    assert code == 0 if not target else code in (0, 2), line
    if code == 0:
        for command in (
            ("audit", "run", "--show", "2"),
            ("predict", "run", "--data", files["data"], "--out", "p.csv"),
        ):
            code, line = run(capsys, *command)
            assert code == 0, line


@pytest.mark.parametrize(
    "ending", [".parquet", ".csv.gz", ".tsv", ".xlsx", ".json", ".jsonl", ".jsonl.gz", ""]
)
@pytest.mark.parametrize("how", ["empty", "truncated", "random bytes", "one word", "scrambled"])
def test_a_file_that_is_not_what_its_name_says(capsys, tmp_path, monkeypatch, tables, how, ending):
    monkeypatch.chdir(tmp_path)
    data, clean = tmp_path / f"data{ending}", tmp_path / "clean.csv"
    content = tables["data"]
    if ending == ".parquet":
        pq.write_table(as_table(content), data)
        content = data.read_bytes()
    if ".jsonl" in ending:
        content = as_json_lines(content)
    if ending.endswith(".gz"):
        content = gzip.compress(content)
    data.write_bytes(SPOILT[how](content))
    clean.write_bytes(tables["clean"])
    before = digests(tmp_path)
    code, line = run(capsys, *arguments({"data": data, "clean": clean}))
    assert code in (0, 2)
    assert code == 0 or line.startswith("reweigh: error: ")
    assert digests(tmp_path) == before


BAD_OPTIONS = (
    ("--learning-rate", "nan"), ("--learning-rate", "inf"), ("--learning-rate", "-1"),
    ("--learning-rate", "0"), ("--learning-rate", "x"), ("--hidden", "3000000"), ("--hidden", "0"),
    ("--hidden", "-3"), ("--steps", "0"), ("--steps", "-1"), ("--steps", "1.5"), ("--batch", "1"),
    ("--batch", "0"), ("--seed", "x"), ("--threads", "0"), ("--holdout", "1"), ("--holdout", "-1"),
    ("--holdout", "nan"), ("--task", "clas"), ("--task", ""), ("--target", ""), ("--target", "x"),
    ("--ignore", "label"), ("--ignore", "nothing"), ("--text", "label"), ("--text", "nothing"),
    ("--encoder", ""), ("--encoder", "nowhere"), ("--text", "town", "--encoder", ""),
    ("--text", "town", "--encoder", "nowhere"), ("--clean-where", "label == 1"),
    ("--clean-where", "x"), ("--clean-where", "town = a"), ("--clean-where", ""),
    ("--encoding", "klingon"), ("--encoding", ""), ("--image-size", "1"), ("--image-size", "nan"),
    ("--test", "nowhere.csv"), ("--test", "."), ("--also-clean", "nowhere.csv"),
    ("--leave-out", "nowhere.csv"), ("--also-clean", "data.csv"), ("--leave-out", "data.csv"),
    ("--data", "."), ("--data", "nowhere.csv"), ("--data", "/dev/null"), ("--clean", "."),
    ("--clean", "/dev/null"), ("--data", ""), ("--out", "data.csv"), ("--out", "/proc/nothing"),
    ("--trees", "lightgmb"), ("--trees", ""), ("--image", "nothing"), ("--image", "town"),
    ("--no-such-option",), ("--resume-with", "nowhere.csv"), ("extra",),
)  # fmt: skip


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=" ".join)
def test_a_bad_option(capsys, tmp_path, monkeypatch, tables, options):
    monkeypatch.chdir(tmp_path)
    files = {role: tmp_path / f"{role}.csv" for role in ("data", "clean")}
    for role, path in files.items():
        path.write_bytes(tables[role])
    before = digests(tmp_path)
    code, line = run(capsys, *arguments(files), *options)
    assert code == 2
    assert line.startswith("reweigh: error: ")
    assert not (tmp_path / "run" / "summary.json").exists()
    assert digests(tmp_path) == before


def test_a_named_pipe_does_not_hang(capsys, tmp_path, monkeypatch, tables):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clean.csv").write_bytes(tables["clean"])
    os.mkfifo(tmp_path / "data.csv")
    files = {"data": tmp_path / "data.csv", "clean": tmp_path / "clean.csv"}
    code, line = run(capsys, *arguments(files))
    assert code == 2
    assert "a pipe or a device" in line


def test_more_than_a_thousand_columns_end(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name, rows in (("data", 40), ("clean", 12)):
        label = np.arange(rows) % 2
        frame = pd.DataFrame(draw.normal(label[:, None], 1, (rows, 1500)).round(2)).add_prefix("c")
        frame.assign(label=np.array(["eel", "dog"])[label]).to_csv(f"{name}.csv", index=False)
    files = {"data": tmp_path / "data.csv", "clean": tmp_path / "clean.csv"}
    code, line = run(capsys, *arguments(files))
    assert code == 0, line
