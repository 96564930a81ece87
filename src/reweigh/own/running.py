"""`train`: from files to a finished run folder, going on wherever it stopped.

prepare -> fit (and compare) -> judge -> rank -> summary.json
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..audit import Ranking
from ..errors import DataError, SettingError
from ..files import writable_folder, write_whole
from ..training import Config, Now, Outcome, fit
from . import auditing, folder, preprocessing
from .comparing import METHODS, Judged, gain, judge
from .diagnosis import class_weights, diagnose
from .folder import Json, read_json, write_json
from .gathering import Say
from .models import Network, config, network
from .options import Options
from .preparing import Prepared, prepare

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
    ranking = auditing.rank(prepared.task.train, outcome, plan.batch)
    auditing.write(out, prepared, outcome, ranking)
    summary = _summary(prepared, plan, shape, outcome, rivals, judged, ranking)
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
    return fit(shape.make, prepared.task, plan, out=out, progress=partial(signs.step, plan.method))


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


def _summary(
    prepared: Prepared,
    plan: Config,
    shape: Network,
    outcome: Outcome,
    rivals: dict[str, Outcome],
    judged: dict[str, Judged],
    ranking: Ranking,
) -> Json:
    comparison = [
        {"method": name, "name": METHODS[name], "figure": found.figure, **gain(judged["reweigh"], found)}
        for name, found in judged.items()
        if name != "reweigh"
    ]  # fmt: skip
    suggested = ranking.suggested
    confident = suggested >= 0 if prepared.classes else ~np.isnan(suggested)
    summary: Json = _plain({
        "metric": "accuracy" if prepared.classes else "mean absolute error",
        "judged_on": prepared.judged_on,
        "judged_rows": len(prepared.task.test) if prepared.judged_on else 0,
        "figure": judged["reweigh"].figure if prepared.judged_on else None,
        "interval": judged["reweigh"].interval if prepared.judged_on else None,
        "comparison": comparison if prepared.judged_on else [],
        "train_rows": len(prepared.task.train),
        "clean_rows": len(prepared.task.clean),
        "suggestions": int(confident.sum()),
        "confusion": _confusion(prepared, ranking),
        "class_weights": class_weights(prepared, outcome),
        "warnings": diagnose(prepared, outcome, comparison),
        "curves": {"reweigh": outcome.curve, **{name: o.curve for name, o in rivals.items()}},
        "metrics": outcome.metrics,
        "plan": {
            "method": plan.method,
            "steps": plan.steps,
            "batch": plan.batch.size,
            "clean_batch": plan.batch.clean_size,
            "learning_rate": plan.optimizer.learning_rate,
            "seed": plan.seed,
            "network": asdict(shape),
        },
        "left_out": [asdict(column) for column in getattr(prepared.found.encoder, "unused", ())],
    })  # fmt: skip
    return summary


def _confusion(prepared: Prepared, ranking: Ranking) -> list[Json]:
    """given -> suggested, with counts, the commonest first."""
    if not prepared.classes:
        return []
    given = prepared.task.train.targets.numpy()[ranking.order]
    there = ranking.suggested >= 0
    pairs = Counter(zip(given[there].tolist(), ranking.suggested[there].tolist(), strict=True))
    name = prepared.classes.__getitem__
    return [
        {"given": name(g), "suggested": name(s), "count": count}
        for (g, s), count in pairs.most_common(200)
    ]


def _plain(value: Any) -> Any:
    """NaN is no JSON; nothing to tell is null."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
