"""A large table from end to end: time and peak memory of `reweigh train`.

    python benchmarks/own_data.py --rows 5000000 --columns 50 --folder /somewhere/with/room

Generates a Parquet file (four fifths numbers, one fifth categories, gaps, 30% of the labels of two
classes flipped to the third), a clean file of 300 rows and a test file, then trains in a process of
its own and reads what the kernel says that process held at most. Part of that is the encoded table,
mapped from disk, which the kernel may drop at any time; `anonymous` is what it may not. The result
is appended to results/own_data/runs.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RESULTS = Path(__file__).parents[1] / "results" / "own_data"
PIECE = 100_000


def piece(rows: int, columns: int, seed: int, noise: float) -> pa.Table:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, rows)
    words = columns // 5
    arrays = {}
    for k in range(columns - words):
        values = draw.normal(truth * (k % 4) * 0.4, 1.0).astype(np.float64)
        values[draw.random(rows) < 0.02] = np.nan
        arrays[f"number_{k}"] = pa.array(values, from_pandas=True)
    for k in range(words):
        codes = np.where(draw.random(rows) < 0.3, truth, draw.integers(0, 8, rows))
        arrays[f"word_{k}"] = pa.array(np.array([f"level {c}" for c in range(8)])[codes])
    given = np.where((draw.random(rows) < noise) & (truth > 0), 0, truth)
    return pa.table(arrays | {"label": pa.array(np.array(["a", "b", "c"])[given])})


def generate(path: Path, rows: int, columns: int, seed: int, noise: float) -> None:
    if path.exists():
        return
    writer = None
    for start in range(0, rows, PIECE):
        table = piece(min(PIECE, rows - start), columns, seed + start, noise)
        writer = writer or pq.ParquetWriter(path.with_suffix(".part"), table.schema)
        writer.write_table(table)
    writer.close()
    os.replace(path.with_suffix(".part"), path)


def watch(pid: int, peaks: dict[str, int], stop: threading.Event) -> None:
    """The largest sizes /proc tells of, in kB, every half second."""
    while not stop.wait(0.5):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "RssAnon", "RssFile"):
                peaks[name] = max(peaks.get(name, 0), int(value.split()[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--folder", type=Path, required=True, help="for the data and the run")
    asked = parser.parse_args()
    folder = asked.folder / f"{asked.rows}x{asked.columns}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows, noise in (
        ("rows", asked.rows, 0.3),
        ("checked", 300, 0.0),
        ("test", 20_000, 0.0),
    ):
        generate(folder / f"{name}.parquet", rows, asked.columns, {"rows": 0, "checked": 1, "test": 2}[name] * 10**9, noise)  # fmt: skip
    out = folder / f"run-{int(time.time())}"
    command = [sys.executable, "-c", "from reweigh.cli import main; main()", "train"]
    command += ["--data", folder / "rows.parquet", "--clean", folder / "checked.parquet"]
    command += ["--test", folder / "test.parquet", "--target", "label", "--out", out]
    command += ["--steps", asked.steps] if asked.steps else []
    began = time.monotonic()
    process = subprocess.Popen([str(part) for part in command])
    peaks, stop = {}, threading.Event()
    watcher = threading.Thread(target=watch, args=(process.pid, peaks, stop))
    watcher.start()
    code = process.wait()
    stop.set()
    watcher.join()
    if code:
        sys.exit(code)
    summary = json.loads((out / "summary.json").read_text())
    size = (folder / "rows.parquet").stat().st_size
    record = {
        "rows": asked.rows, "columns": asked.columns, "steps": summary["plan"]["steps"],
        "file_gb": round(size / 1e9, 3), "seconds": round(time.monotonic() - began, 1),
        "peak_gb": round(peaks["VmHWM"] * 1024 / 1e9, 3),
        "anonymous_gb": round(peaks["RssAnon"] * 1024 / 1e9, 3),
        "accuracy": summary["figure"], "suggestions": summary["suggestions"],
    }  # fmt: skip
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "runs.jsonl").open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
