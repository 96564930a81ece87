"""`train`: from files to a finished run folder, going on wherever it stopped.

prepare -> fit (and compare) -> judge candidates, keep one -> rank -> summary.json
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from .. import runs
from ..errors import DataError, SettingError
from ..files import writable_folder, write_whole
from ..runs import RunFile
from ..training import Config, Now, Observer, fit
from .audit import rank, write_ranking
from .checked_doubts import with_checked_doubts
from .contest import FEWEST, Arena, Contest, names_for, network_folds
from .final_outputs import TestOutputs, TrainOutputs
from .inspection import Say
from .label_doubts import doubt_labels, weighed_rows
from .label_errors import label_errors, save_sentinels
from .label_sources import read_sources
from .network_candidates import NetworkRuns
from .networks import choose_config, choose_network, make_model, stopped_plan
from .options import Options, flag
from .plain_rows import PlainRows, plain_rows
from .preparation import Prepared, prepare
from .stages import Stage, stages
from .summary import METHODS, JudgedRun, summarise
from .voice_file import write_voices

RELEASE_EVERY = 200  # steps; encoded rows in memory are freed then
PREPARED = {RunFile.ENCODED, RunFile.PREPROCESS, RunFile.PREPROCESS_ARRAYS}
"""What a folder may hold before training begins."""


@dataclass(frozen=True)
class Signs:
    """Signs of life: a line, a share of the encoding, a step of training, a fit of a candidate.

    stages    what will be done, and about how much of it
    fold      a step of a network that judges a candidate
    """

    say: Say = lambda line: None
    stages: Callable[[Sequence[Stage]], None] = lambda stages: None
    encoding: Callable[[str, int, int], None] = lambda what, done, total: None
    step: Callable[[str, Now], None] = lambda method, now: None
    judging: Callable[[str, int, int], None] = lambda candidate, done, total: None
    fold: Callable[[Now], None] = lambda now: None


def train(options: Options, out: Path, signs: Signs | None = None) -> runs.Json:
    """Train on the user's data into the folder `out`; the content of its summary.json."""
    return runs.versioned(run_training(options, out, signs or Signs()))


def run_training(options: Options, out: Path, signs: Signs) -> runs.RunSummary:
    """`train`, with the summary as a value."""
    writable_folder(out)
    _check(out, options)
    if (out / RunFile.SUMMARY).exists():
        signs.say(f"{out} is finished; remove it, or give another --out, to train again")
        return runs.read(out / RunFile.SUMMARY, runs.RunSummary)
    prepared = prepare(options, out, say=signs.say, progress=signs.encoding)
    names = names_for(prepared, options)  # an unknown one is refused before any work
    plan, shape = choose_config(prepared, options), choose_network(prepared, options)
    # Only now is the folder this run's: options that were refused must not bind the next ones.
    runs.write(out / RunFile.OPTIONS, options)
    _describe(out, options, prepared, plan, shape)
    signs.say(_plan(prepared, plan, shape))
    signs.stages(_stages(prepared, options, plan, names))
    trainer = _Trainer(prepared, shape, plan, signs)
    seen = TrainOutputs(prepared.task.train)
    ours = trainer.fit(plan, out, train=seen)
    stopped = stopped_plan(plan, ours.outcome)
    if options.early_stop:
        signs.say(f"the network was best after {stopped.steps:,} of {plan.steps:,} steps")
    rivals = {
        method: trainer.fit(replace(plan, method=method), out / RunFile.COMPARE / method)
        for method in (METHODS if options.compare else ())
    }
    sources = read_sources(prepared, options.source)
    tell = partial(signs.judging, "labels")
    doubts, rows = None, None
    if options.weigh_sources and sources is not None:
        rows = plain_rows(prepared, seed=options.seed, say=signs.say)
        doubts = doubt_labels(prepared, options, rows=rows, say=signs.say, tell=tell)
        rows = weighed_rows(prepared, rows, sources, doubts, say=signs.say)
    contest = _contest(trainer, options, out, ours, rivals, rows)
    signs.say("ranking the labels")
    plain = rivals["uniform"].outcome if rivals else None
    ranking = rank(prepared.task.train, ours.outcome, plan.batch, plain=plain, seen=seen)
    posterior = None if contest is None else contest.posterior
    if doubts is None:
        rows = None if contest is None else contest.rows
        doubts = doubt_labels(prepared, options, rows=rows, say=signs.say, tell=tell)
    write_ranking(
        out, prepared, ours.outcome, ranking, posterior=posterior, doubts=doubts, sources=sources
    )
    write_voices(out, prepared, ours.outcome, ranking, plan.batch)
    if doubts is not None:
        save_sentinels(out, doubts.found.sentinels)
    summary = summarise(
        prepared, plan, shape, {plan.method: ours, **rivals}, ranking, contest=contest,
        labels=None if doubts is None
        else label_errors(prepared, doubts, sources, weighed=options.weigh_sources),
    )  # fmt: skip
    summary = with_checked_doubts(summary, prepared, doubts)
    runs.write(out / RunFile.SUMMARY, summary)
    shutil.rmtree(out / RunFile.ENCODED, ignore_errors=True)
    return summary


def _stages(
    prepared: Prepared, options: Options, plan: Config, names: Sequence[str]
) -> tuple[Stage, ...]:
    once = prepared.judged_on == "test" or prepared.validated
    few = len(prepared.task.clean) < FEWEST and not (prepared.judged_on or prepared.validated)
    judged = () if few or options.method == "reweigh" else names
    folds = 0 if once else network_folds(plan, prepared)
    compare = tuple(METHODS) if options.compare else ()
    return stages(plan, judged, folds=folds, compare=compare)


def _check(out: Path, options: Options) -> None:
    """`out` must be new, or hold this very run."""
    path = out / RunFile.OPTIONS
    if path.exists():
        if different := runs.differences(runs.read(path, Options), options):
            name, (there, here) = next(iter(different.items()))
            raise SettingError(
                f"{out} holds a run with other options ({flag(name)} there "
                f"{there}, here {here}); give another --out, or remove it"
            )
    elif (
        strangers := {p.name for p in out.iterdir() if not p.name.startswith(f"{RunFile.STDIN}.")}
        - PREPARED
    ):
        raise DataError(f"{out} has {min(strangers)} and is no run; give another --out")


@dataclass(frozen=True)
class _Trainer:
    """Trains models of one shape on one task, and judges each on the test rows."""

    prepared: Prepared
    shape: runs.Network
    plan: Config
    signs: Signs

    def fit(self, plan: Config, out: Path, *, train: TrainOutputs | None = None) -> JudgedRun:
        """One run into `out`; `train` is shown what the final model says of the train rows."""
        out.mkdir(parents=True, exist_ok=True)
        task, scale = self.prepared.task, self.prepared.target_scale.scale
        test = TestOutputs(task.test, scale=scale)
        observe: dict[str, Observer] = {"test": test, **({"train": train} if train else {})}

        def step(now: Now) -> None:
            if now.step % RELEASE_EVERY == 0:
                self.prepared.release()
            self.signs.step(plan.method, now)

        model = partial(make_model, self.shape)
        outcome = fit(model, task, plan, out=out, progress=step, observe=observe)
        test.complete(outcome.model, plan.batch)
        self.prepared.release()
        return JudgedRun(outcome, test)


def _contest(
    trainer: _Trainer,
    options: Options,
    out: Path,
    ours: JudgedRun,
    rivals: dict[str, JudgedRun],
    rows: PlainRows | None,
) -> Contest | None:
    """All candidates judged; None where there is but the reweighed network."""
    prepared, signs = trainer.prepared, trainer.signs
    if options.method == "reweigh":
        return None
    few = len(prepared.task.clean) < FEWEST and not (prepared.judged_on or prepared.validated)
    if few and options.method is None:
        signs.say(f"fewer than {FEWEST} checked rows cannot judge candidates: reweighed it is")
        return None

    def plain() -> nn.Module:
        if "uniform" in rivals:
            return rivals["uniform"].outcome.model
        plan = replace(trainer.plan, method="uniform")
        return trainer.fit(plan, out / RunFile.CANDIDATES / "plain").outcome.model

    trained = {"reweigh": lambda: ours.outcome.model, "plain": plain}
    plan = stopped_plan(trainer.plan, ours.outcome)
    networks = NetworkRuns(prepared.task, plan, trainer.shape, trained, signs.fold)
    signs.say("judging candidates")
    return Arena(prepared, networks, options, out, signs.say, signs.judging, rows).hold()


def _describe(
    out: Path, options: Options, prepared: Prepared, plan: Config, shape: runs.Network
) -> None:
    inspected, scaling = prepared.inspected, plan.batch.scaling
    data = inspected.sources["data"].files
    described = runs.ModelDescription(
        network=shape,
        mean=scaling.mean,
        std=scaling.std,
        peak=plan.batch.peak,
        centre=prepared.target_scale.centre,
        scale=prepared.target_scale.scale,
    )
    runs.write(out / RunFile.NETWORK, described)
    source = runs.RunSource(
        kind=inspected.kind,
        task=inspected.task,
        target=inspected.target,
        classes=prepared.classes,
        rows=len(inspected.sources["data"]),
        data=options.data,
        clean=options.clean,
        clean_where=options.clean_where,
        text_column=options.text,
        columns=tuple(getattr(data, "columns", ())),
        encoding=options.encoding,
        delimiter=getattr(data, "delimiter", None),
        commas=tuple(sorted(getattr(data, "commas", ()))),
        image_column=getattr(data, "column", None),
        shards=data.shards,
    )
    runs.write(out / RunFile.SOURCE, source)
    if len(prepared.unreadable):
        names = [data.files[i] for i in prepared.unreadable]  # type: ignore[union-attr]
        write_whole(out / RunFile.UNREADABLE, "".join(f"{name}\n" for name in names))


def _plan(prepared: Prepared, plan: Config, shape: runs.Network) -> str:
    task = prepared.task
    what = (
        f"{len(prepared.classes)} classes"
        if prepared.classes
        else "regression, a number to predict"
    )
    size = "x".join(map(str, shape.shape))
    hidden = f", hidden {'-'.join(map(str, shape.hidden))}" if shape.hidden else ""
    return (
        f"{prepared.inspected.kind}: {what}; {len(task.train):,} training rows, {len(task.clean):,} "
        f"clean; {shape.kind} on {size} inputs{hidden}, {plan.steps:,} steps of {plan.batch.size}"
    )
