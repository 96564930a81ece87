"""Runs that are killed again and again until they are finished; called by test_training_killed.py.

    python killed_runs.py FOLDER KILLS

Every attempt is a fork of this process, which has imported everything and trained nothing. It dies
by SIGKILL: half of the time when its parent says so, at a random moment; otherwise at an event of
its own, such as the middle of a write. Prints how often each happened as JSON.
"""

import itertools
import json
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import accelerate  # noqa: F401 - what a run imports when it needs it, once for all forks
import pyarrow.parquet  # noqa: F401
import safetensors.torch  # noqa: F401
import torch
import torch._dynamo

from reweigh import files
from reweigh.errors import ReweighWarning
from reweigh.runs import RunFile
from reweigh.training import fit
from reweigh.training import run_folder as folder
from support.runs import digits_task, tiny, tiny_config

METHODS = ("reweigh+ft", "s_model_conf+es")
RESULTS = ("config.json", "metrics.jsonl", "weights.parquet", "model.safetensors")


EVENTS = (
    "step", "torn write", "before sync", "after sync", "before rename", "after rename", "torn line",
)  # fmt: skip
ANY_MOMENT = "any moment"


class Fuse:
    """Kills the process at the `count`-th event of a kind."""

    def __init__(self, event=None, count=0):
        self.event, self.count = event, count

    def last(self, event):
        return event == self.event and self.count == 1

    def burn(self, event):
        if self.last(event):
            os.kill(os.getpid(), signal.SIGKILL)
        self.count -= event == self.event


def arm(fuse):
    """Put the fuse into everything that touches the disk."""
    real = {
        "fsync": os.fsync,
        "replace": os.replace,
        "open": open,
        "append": folder.RunFolder.append,
    }

    class Torn:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            self.stream.__enter__()
            return self

        def __exit__(self, *args):
            return self.stream.__exit__(*args)

        def __getattr__(self, name):
            return getattr(self.stream, name)

        def write(self, content):
            if fuse.last("torn write"):
                self.stream.write(bytes(content)[: len(content) // 2])
                self.stream.flush()
            fuse.burn("torn write")
            return self.stream.write(content)

    def fsync(handle):
        fuse.burn("before sync")
        real["fsync"](handle)
        fuse.burn("after sync")

    def replace(source, target):
        fuse.burn("before rename")
        real["replace"](source, target)
        fuse.burn("after rename")

    def append(self, point):
        if fuse.last("torn line"):
            with (self.path / RunFile.METRICS).open("a") as stream:
                stream.write(json.dumps(point)[:40])
        fuse.burn("torn line")
        real["append"](self, point)

    os.fsync, os.replace, folder.RunFolder.append = fsync, replace, append
    files.open = lambda *args, **options: Torn(real["open"](*args, **options))


def attempt(out, method, *, fuse=None, seconds=None):
    """Run in a fork; whether it was killed."""
    child = os.fork()
    if child == 0:
        fuse = fuse or Fuse()
        arm(fuse)
        fit(tiny, digits_task(), config(method), out=out, progress=lambda now: fuse.burn("step"))
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.WEXITSTATUS(status) == 0, "a run failed"
    return killed


def check(path, expected):
    """Whatever has its name is whole; only the last line of the metrics may be torn."""
    for file in (path / "checkpoints").glob("*.pt"):
        torch.load(file, weights_only=True)
    for name in ("config.json", "weights.parquet", "model.safetensors"):
        if (path / name).exists():
            assert (path / name).read_bytes() == expected[name], f"{path / name} differs"
    if (path / "metrics.jsonl").exists():
        *lines, _ = (path / "metrics.jsonl").read_bytes().split(b"\n")
        wanted = expected["metrics.jsonl"].split(b"\n")
        assert lines == wanted[: len(lines)], f"{path}: lines are torn or repeated"


def config(method):
    return tiny_config(method, checkpoint_every=2, evaluate_every=3, keep=1)


def main(out, wanted):
    digits_task()
    rng, killed, finished, expected = random.Random(0), Counter(), 0, {}
    begun = time.monotonic()
    for method in METHODS:
        attempt(out / method, method)
        expected[method] = {name: (out / method / name).read_bytes() for name in RESULTS}
    usual = (time.monotonic() - begun) / len(METHODS)
    moments = itertools.cycle(m for event in EVENTS for m in (event, ANY_MOMENT))

    def missing():
        return sum(killed.values()) < wanted or not {*EVENTS, ANY_MOMENT} <= set(killed)

    while missing() or finished < len(METHODS):
        method = METHODS[finished % len(METHODS)]
        path = out / f"{finished}-{method}"
        while True:
            moment = next(moments) if missing() else None
            if moment == ANY_MOMENT:
                dead = attempt(path, method, seconds=rng.random() * usual)
            else:
                dead = attempt(path, method, fuse=Fuse(moment, rng.randrange(1, 6)))
            if not dead:
                break
            killed[moment] += 1
            check(path, expected[method])
        finished += 1
        for name, content in expected[method].items():
            assert (path / name).read_bytes() == content, f"{path / name} differs"
        left = [p.name for p in path.rglob("*") if p.name.startswith(".")]
        assert not left, f"{left} was left behind"
    print(json.dumps({"killed": killed, "finished": finished}))


if __name__ == "__main__":
    warnings.simplefilter("error", ReweighWarning)  # a checkpoint that cannot be read
    main(Path(sys.argv[1]), int(sys.argv[2]))
