"""Streams from shards: rows a second and memory, over ten million rows.

    python benchmarks/streaming.py --folder /somewhere/with/room

Generates shards (16 numbers and one of two labels a row, 40% of one class's labels wrong; for tar,
fewer rows of 16x16 images), then runs each case in a process of its own:

    read      batches alone
    reweigh   a loop of one's own: Reweighter, SGD and ledger on a small MLP
    fit       training.fit, one pass, with its evaluation of every row at the end

Resident memory is noted after every tenth of the rows: it is constant if the last is like the first
(of `fit`, at the peak). The ledger, 88 bytes a row, is touched before the first row, so that it counts
from the beginning. `cpu_seconds` count the workers and the start of Python: on a busy machine they say
more than `seconds`. Writes results/streaming/runs.json.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import reweigh
from reweigh import data
from reweigh.audit import Ledger
from reweigh.training import Config, Optimizer, fit

RESULTS = Path(__file__).parents[1] / "results" / "streaming"
COLUMNS, CLEAN = 16, 100
SIZES = {"npy": 10_000, "parquet": 10_000, "tar": 1000}
NAMES = tuple(f"x{k}" for k in range(COLUMNS))
CASES = [
    ("parquet", "reweigh", 0), ("npy", "reweigh", 0), ("parquet", "read", 0), ("npy", "read", 0),
    ("tar", "read", 0), ("parquet", "reweigh", 1), ("parquet", "fit", 0),
]  # fmt: skip


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, given labels, true labels."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 2, count)
    inputs = draw.normal(truth[:, None] * 0.5, 1.0, (count, COLUMNS)).astype(np.float32)
    return inputs, np.where(draw.random(count) < 0.4, 0, truth), truth


def write(folder: Path, kind: str, total: int, shards: int) -> None:
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(shards):
        count = total * (k + 1) // shards - total * k // shards
        inputs, given, _ = rows(count, k)
        path = folder / f"part-{k:05d}"
        if kind == "npy":
            np.save(f"{path}.x.npy", inputs)
            np.save(f"{path}.label.npy", given)
        elif kind == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = {name: inputs[:, c] for c, name in enumerate(NAMES)}
            pq.write_table(pa.table({**columns, "label": given}), path.with_suffix(".parquet"))
        else:
            write_tar(path.with_suffix(".tar"), inputs, given)
    (folder / "done").touch()


def write_tar(path: Path, inputs: np.ndarray, given: np.ndarray) -> None:
    from PIL import Image

    with tarfile.open(path, "w") as archive:
        for k, (row, label) in enumerate(zip(inputs, given, strict=True)):
            stream = io.BytesIO()
            Image.fromarray(np.outer(row, row).clip(0, 255).astype(np.uint8)).save(stream, "png")
            for field, content in (("png", stream.getvalue()), ("cls", b"%d" % label)):
                member = tarfile.TarInfo(f"{k:06d}.{field}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def megabytes() -> int:
    """Resident, of this process."""
    status = Path("/proc/self/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS")) // 1024


def cpu() -> float:
    """Seconds of this process and of the workers it has waited for."""
    return sum(os.times()[:4])


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM")) // 1024


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 32), nn.ReLU(), nn.Linear(32, 2))


def part(inputs: np.ndarray, labels: np.ndarray) -> data.Part:
    return data.whole(data.Examples(torch.from_numpy(inputs), torch.from_numpy(labels)))


def run(folder: Path, kind: str, what: str, workers: int) -> dict[str, object]:
    torch.set_num_threads(1)
    fields = {
        "npy": data.Fields("x", "label"),
        "parquet": data.Fields(NAMES, "label"),
        "tar": data.Fields("png", "cls", images=data.ImageEncoder(16, 1)),
    }[kind]
    shards = data.open_shards(folder)
    total, size, resident = len(shards), SIZES[kind], []
    clean, test = (part(x, y) for x, _, y in (rows(CLEAN, 10**6), rows(20_000, 10**6 + 1)))
    before = megabytes()
    begun = time.monotonic()
    accuracy = None
    if what == "fit":
        task = data.StreamedTask(
            data.stream_part(shards, fields, workers=workers), clean, test, ("no", "yes")
        )
        steps = total // size
        config = Config(
            steps=steps, optimizer=Optimizer(learning_rate=0.05), checkpoint_every=0,
            batch=data.BatchOptions(size=size, clean_size=CLEAN), device="cpu",
        )  # fmt: skip

        def note(now: object) -> None:
            if now.step % (steps // 10) == 0:
                resident.append(megabytes())

        outcome = fit(model, task, config, progress=note)
        accuracy, seconds = outcome.test_accuracy, time.monotonic() - begun
    else:
        step = loop(clean, total) if what == "reweigh" else lambda batch: None
        stream = data.Stream(shards, fields, size=size, seed=0)
        tenths = {stream.steps * k // 10 for k in range(1, 11)}
        begun, seen = time.monotonic(), 0
        for k, batch in enumerate(stream.epoch(0, workers=workers), start=1):
            step(batch)
            seen += len(batch.ids)
            if k in tenths:
                resident.append(megabytes())
        assert seen == total
        seconds = time.monotonic() - begun
    return {
        "format": kind, "what": what, "workers": workers, "rows": total,
        "shards": len(shards.paths), "batch": size, "seconds": round(seconds, 1),
        "rows_per_second": round(total / seconds), "cpu_seconds": round(cpu(), 1),
        "resident_mb_before": before,
        "resident_mb_by_tenth": resident, "peak_mb": peak(),
        **({} if accuracy is None else {"test_accuracy": round(accuracy, 4)}),
    }  # fmt: skip


def loop(clean: data.Part, total: int):
    net = model()
    reweigher = reweigh.Reweighter(net, reweigh.per_example(nn.functional.cross_entropy))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    ledger = Ledger(total)
    ledger.load_state_dict(ledger.state_dict())  # touches its memory
    trusted = (clean.inputs, clean.targets)

    def step(batch: data.Drawn) -> None:
        weighed = reweigher((batch.inputs, batch.targets), trusted)
        optimizer.zero_grad()
        weighed.loss.backward()
        optimizer.step()
        ledger.record(batch.ids, weighed.weights, weighed.scores, weighed.losses)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--images", type=int, default=20_000, help="rows of the tar shards")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--folder", type=Path, required=True, help="for the shards")
    parser.add_argument("--out", type=Path, default=RESULTS / "runs.json")
    parser.add_argument("--case", help="one case only, as json: what a process of its own runs")
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(run(asked.folder, *json.loads(asked.case))))
        return
    done = []
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for kind, what, workers in CASES:
        count = asked.images if kind == "tar" else asked.rows
        folder = asked.folder / f"{kind}-{count}-{asked.shards}"
        write(folder, kind, count, asked.shards)
        command = [sys.executable, __file__, "--folder", folder, "--case", json.dumps([kind, what, workers])]  # fmt: skip
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        done.append(json.loads(output.splitlines()[-1]))
        print(json.dumps(done[-1]), flush=True)
        asked.out.write_text(json.dumps(provenance(asked, done), indent=1) + "\n")


def provenance(asked: argparse.Namespace, done: list[dict[str, object]]) -> dict[str, object]:
    import pyarrow

    from reweigh.experiments import commit, versions

    processor = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")),
        platform.processor(),
    )  # fmt: skip
    arguments = f"--rows {asked.rows} --images {asked.images} --shards {asked.shards}"
    return {
        "command": f"python benchmarks/streaming.py {arguments} --folder FOLDER",
        "cases": done,
        "machine": {"processor": processor, "cores": os.cpu_count(), "threads": 1},
        "versions": {**versions(), "pyarrow": pyarrow.__version__},
        "commit": commit(),
    }


if __name__ == "__main__":
    main()
