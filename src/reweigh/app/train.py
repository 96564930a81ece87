"""`train`: from files to a finished run folder, going on wherever it stopped.

prepare -> fit (and compare) -> judge -> rank -> summary.json
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import DataError, SettingError
from ..files import writable_folder, write_whole
from ..training import Config, Now, Outcome, fit
from . import audit as auditing
from . import folder, preprocessing
from .comparison import METHODS, judge
from .folder import Json, read_json, write_json
from .inspection import Say
from .networks import Network, config, network
from .options import Options
from .preparation import Prepared, prepare
from .summary import summarise

LET_GO = 200  # steps between letting go of encoded rows
ENCODED, COMPARED = "encoded", "compare"
PREPARED = {ENCODED, preprocessing.NAME, preprocessing.ARRAYS}
"""What lies in a folder before training begins."""


@dataclass(frozen=True)
class Signs:
    """Signs of life: a line, a share of the encoding, a step of the training of `method`."""

    say: Say = lambda line: None
    encoding: Callable[[str, int, int], None] = lambda what, done, total: None
    step: Callable[[str, Now], None] = lambda method, now: None


def train(options: Options, out: Path, signs: Signs | None = None) -> Json:
    """Train on the user's data into the folder `out`; the content of its summary.json."""
    signs = signs or Signs()
    writable_folder(out)
    _check(out, options)
    if (out / folder.SUMMARY).exists():
        signs.say(f"{out} is finished; remove it, or give another --out, to train again")
        return read_json(out / folder.SUMMARY)
    prepared = prepare(options, out, say=signs.say, progress=signs.encoding)
    # Only now is the folder this run's: options that were refused must not bind the next ones.
    write_json(out / folder.OPTIONS, json.loads(options.json()))
    plan, shape = config(prepared, options), network(prepared, options)
    _describe(out, options, prepared, plan, shape)
    signs.say(_plan(prepared, plan, shape))
    outcome = _fit(prepared, plan, shape, out, signs)
    rivals = {}
    if options.compare:
        for method in METHODS:
            other = replace(plan, method=method)
            rivals[method] = _fit(prepared, other, shape, out / COMPARED / method, signs)
    judged = {
        name: judge(prepared, found, plan.batch)
        for name, found in {"reweigh": outcome, **rivals}.items()
    }
    signs.say("ranking the labels")
    ranking = auditing.rank(prepared.task.train, outcome, plan.batch, plain=rivals.get("uniform"))
    auditing.write(out, prepared, outcome, ranking)
    summary = summarise(prepared, plan, shape, outcome, rivals, judged, ranking)
    write_json(out / folder.SUMMARY, summary)
    shutil.rmtree(out / ENCODED, ignore_errors=True)
    return read_json(out / folder.SUMMARY)


def _check(out: Path, options: Options) -> None:
    """`out` must be new, or hold this very run."""
    path = out / folder.OPTIONS
    mine = json.loads(options.json())
    if path.exists():
        theirs = read_json(path)
        different = [n for n in mine if mine[n] != theirs.get(n)]
        if different:
            name = different[0]
            raise SettingError(
                f"{out} holds a run with other options (--{name.replace('_', '-')} there "
                f"{theirs.get(name)}, here {mine[name]}); give another --out, or remove it"
            )
    elif strangers := {p.name for p in out.iterdir()} - PREPARED:
        raise DataError(f"{out} has {min(strangers)} and is no run; give another --out")


def _fit(prepared: Prepared, plan: Config, shape: Network, out: Path, signs: Signs) -> Outcome:
    out.mkdir(parents=True, exist_ok=True)

    def step(now: Now) -> None:
        if now.step % LET_GO == 0:
            prepared.release()
        signs.step(plan.method, now)

    outcome = fit(shape.make, prepared.task, plan, out=out, progress=step)
    prepared.release()
    return outcome


def _describe(
    out: Path, options: Options, prepared: Prepared, plan: Config, shape: Network
) -> None:
    found = prepared.found
    data = found.sources["data"].files
    write_json(out / folder.NETWORK, {
        "network": asdict(shape),
        "mean": plan.batch.scaling.mean,
        "std": plan.batch.scaling.std,
        "peak": plan.batch.peak,
        "centre": prepared.centre,
        "scale": prepared.scale,
    })  # fmt: skip
    write_json(out / folder.SOURCE, {
        "kind": found.kind,
        "task": found.task,
        "target": found.target,
        "classes": list(prepared.classes),
        "rows": len(found.sources["data"]),
        "data": str(options.data.resolve()),
        "clean": None if options.clean is None else str(options.clean.resolve()),
        "clean_where": options.clean_where,
        "text_column": options.text,
        "columns": list(getattr(data, "columns", [])),
        "encoding": options.encoding,
        "delimiter": getattr(data, "delimiter", None),
    })  # fmt: skip
    if len(prepared.unreadable):
        names = [data.files[i] for i in prepared.unreadable]  # type: ignore[union-attr]
        write_whole(out / folder.UNREADABLE, "".join(f"{name}\n" for name in names))


def _plan(prepared: Prepared, plan: Config, shape: Network) -> str:
    task = prepared.task
    what = (
        f"{len(prepared.classes)} classes"
        if prepared.classes
        else "regression, a number to predict"
    )
    size = "x".join(map(str, shape.shape))
    hidden = f", hidden {'-'.join(map(str, shape.hidden))}" if shape.hidden else ""
    return (
        f"{prepared.found.kind}: {what}; {len(task.train):,} training rows, {len(task.clean):,} "
        f"clean; {shape.kind} on {size} inputs{hidden}, {plan.steps:,} steps of {plan.batch.size}"
    )
