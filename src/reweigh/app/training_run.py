"""`train`: from files to a finished run folder, going on wherever it stopped.

prepare -> fit (and compare) -> judge -> rank -> summary.json
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import DataError, SettingError
from ..files import writable_folder, write_whole
from ..runs import (
    COMPARE,
    ENCODED,
    NETWORK,
    OPTIONS,
    PREPROCESS,
    PREPROCESS_ARRAYS,
    SOURCE,
    SUMMARY,
    UNREADABLE,
    Json,
    ModelDescription,
    Network,
    RunSource,
    RunSummary,
    differences,
    read,
    versioned,
    write,
)
from ..training import Config, Now, Outcome, fit
from . import audit as auditing
from .comparison import METHODS, judge
from .inspection import Say
from .networks import config, make, network
from .options import Options, flag
from .preparation import Prepared, prepare
from .summary import summarise

LET_GO = 200  # steps between letting go of encoded rows
PREPARED = {ENCODED, PREPROCESS, PREPROCESS_ARRAYS}
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
    if (out / SUMMARY).exists():
        signs.say(f"{out} is finished; remove it, or give another --out, to train again")
        return versioned(read(out / SUMMARY, RunSummary))
    prepared = prepare(options, out, say=signs.say, progress=signs.encoding)
    # Only now is the folder this run's: options that were refused must not bind the next ones.
    write(out / OPTIONS, options)
    plan, shape = config(prepared, options), network(prepared, options)
    _describe(out, options, prepared, plan, shape)
    signs.say(_plan(prepared, plan, shape))
    outcome = _fit(prepared, plan, shape, out, signs)
    rivals = {}
    if options.compare:
        for method in METHODS:
            other = replace(plan, method=method)
            rivals[method] = _fit(prepared, other, shape, out / COMPARE / method, signs)
    judged = {
        name: judge(prepared, found, plan.batch)
        for name, found in {"reweigh": outcome, **rivals}.items()
    }
    signs.say("ranking the labels")
    ranking = auditing.rank(prepared.task.train, outcome, plan.batch, plain=rivals.get("uniform"))
    auditing.write(out, prepared, outcome, ranking)
    summary = summarise(prepared, plan, shape, outcome, rivals, judged, ranking)
    written = write(out / SUMMARY, summary)
    shutil.rmtree(out / ENCODED, ignore_errors=True)
    return written


def _check(out: Path, options: Options) -> None:
    """`out` must be new, or hold this very run."""
    path = out / OPTIONS
    if path.exists():
        for name, (there, here) in differences(read(path, Options), options).items():
            raise SettingError(
                f"{out} holds a run with other options ({flag(name)} there "
                f"{there}, here {here}); give another --out, or remove it"
            )
    elif strangers := {p.name for p in out.iterdir()} - PREPARED:
        raise DataError(f"{out} has {min(strangers)} and is no run; give another --out")


def _fit(prepared: Prepared, plan: Config, shape: Network, out: Path, signs: Signs) -> Outcome:
    out.mkdir(parents=True, exist_ok=True)

    def step(now: Now) -> None:
        if now.step % LET_GO == 0:
            prepared.release()
        signs.step(plan.method, now)

    outcome = fit(partial(make, shape), prepared.task, plan, out=out, progress=step)
    prepared.release()
    return outcome


def _describe(
    out: Path, options: Options, prepared: Prepared, plan: Config, shape: Network
) -> None:
    found, scaling = prepared.found, plan.batch.scaling
    data = found.sources["data"].files
    described = ModelDescription(
        network=shape,
        mean=scaling.mean,
        std=scaling.std,
        peak=plan.batch.peak,
        centre=prepared.centre,
        scale=prepared.scale,
    )
    write(out / NETWORK, described)
    source = RunSource(
        kind=found.kind,
        task=found.task,
        target=found.target,
        classes=prepared.classes,
        rows=len(found.sources["data"]),
        data=options.data,
        clean=options.clean,
        clean_where=options.clean_where,
        text_column=options.text,
        columns=tuple(getattr(data, "columns", ())),
        encoding=options.encoding,
        delimiter=getattr(data, "delimiter", None),
    )
    write(out / SOURCE, source)
    if len(prepared.unreadable):
        names = [data.files[i] for i in prepared.unreadable]  # type: ignore[union-attr]
        write_whole(out / UNREADABLE, "".join(f"{name}\n" for name in names))


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
