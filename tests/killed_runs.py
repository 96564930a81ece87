"""Runs that are killed again and again until they are finished; called by test_training_killed.py.

    python killed_runs.py FOLDER KILLS

Every attempt is a fork of this process, which has imported everything and trained nothing. It dies
by SIGKILL: half of the time when its parent says so, at a random moment; otherwise at a chosen one
of its own events, among them the middle of a write, before and after a sync, and before and after a
rename. Prints what happened as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import accelerate  # noqa: F401 - what a run imports when it needs it, once for all forks
import pyarrow.parquet  # noqa: F401
import safetensors.torch  # noqa: F401
import torch._dynamo  # noqa: F401

from reweigh import files
from reweigh.training import fit, folder
from runs import digits_task, tiny, tiny_config

METHODS = ("reweigh+ft", "s_model_conf+es")
RESULTS = ("config.json", "metrics.jsonl", "weights.parquet", "model.safetensors")


class Fuse:
    """Kills the process at its `count`-th event."""

    def __init__(self, count, report):
        self.count, self.report = count, report

    def burn(self, event):
        self.count -= 1
        if self.count == 0:
            os.write(self.report, event.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def last(self):
        return self.count == 1


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
            if fuse.last():
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
        if fuse.last():
            with (self.path / folder.METRICS).open("a") as stream:
                stream.write(json.dumps(point)[:40])
        fuse.burn("torn line")
        real["append"](self, point)

    os.fsync, os.replace, folder.RunFolder.append = fsync, replace, append
    files.open = lambda *args, **options: Torn(real["open"](*args, **options))


def attempt(out, method, *, events=None, seconds=None):
    """Run in a fork; the name of what killed it, or "" when it finished."""
    receive, report = os.pipe()
    child = os.fork()
    if child == 0:
        fuse = Fuse(events or 0, report)
        if events:
            arm(fuse)
        fit(tiny, digits_task(), config(method), out=out, progress=lambda now: fuse.burn("step"))
        os._exit(0)
    os.close(report)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(receive) as stream:
        event = stream.read()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return event or "any moment"
    assert os.WEXITSTATUS(status) == 0, "a run failed"
    return ""


def config(method):
    return tiny_config(method, checkpoint_every=2, evaluate_every=3, keep=1)


def main(out, wanted):
    rng, killed, finished = random.Random(0), Counter(), 0
    digits_task()
    expected = {}
    begun = time.monotonic()
    for method in METHODS:
        attempt(out / method, method)
        expected[method] = {name: (out / method / name).read_bytes() for name in RESULTS}
    usual = (time.monotonic() - begun) / len(METHODS)
    while sum(killed.values()) < wanted or finished < len(METHODS):
        method = METHODS[finished % len(METHODS)]
        path = out / f"{finished}-{method}"
        while True:
            enough = sum(killed.values()) >= wanted
            how = {} if enough else {"events": rng.randrange(1, 40)}
            if not enough and rng.random() < 0.5:
                how = {"seconds": rng.random() * usual}
            event = attempt(path, method, **how)
            if not event:
                break
            killed[event] += 1
        finished += 1
        for name, content in expected[method].items():
            assert (path / name).read_bytes() == content, f"{path / name} differs"
        left = [p.name for p in path.rglob("*") if p.name.startswith(".")]
        assert not left, f"{left} was left behind"
    print(json.dumps({"killed": killed, "finished": finished}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
