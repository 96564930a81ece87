"""`reweigh fix`: what to do with each label of a run, and what that is worth; nothing is written here.

decisions       from audit.parquet (sentinels/repairs.py); checked rows that are in the data get their
                checked labels
right labels    before and after, from sentinels.npz
a model's gain  a plain model fitted to the data as labelled and as corrected, judged on checked rows.
                For each of PARTS parts of these, all is done anew without them: they have no part in
                what is corrected, nor in the model
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import sentinels
from ..candidates import (
    Boosting,
    Learner,
    Places,
    PlainData,
    Reals,
    SoftmaxRegression,
    deal,
    lead,
    one_hot,
)
from ..errors import DataError, SettingError
from ..runs import FixSummary, LabelErrors, LabelFix, RunFile, TrainedRun, open_run, read
from ..runs import reading_parquet as reading
from ..sentinels import KEEP, RELABEL, SET_ASIDE, LabelJudgement, Policy
from ..tables import arrow
from .inspection import Say
from .label_doubts import asks_trees
from .label_errors import read_sentinels
from .options import Options
from .output_files import check_fix_folder
from .plain_rows import plain_rows
from .preparation import Prepared, prepare

PARTS = 4
Tell = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class FixPlan:
    """What is to be written: the rows that change, by index, and the summary without the file's name."""

    run: TrainedRun
    fixes: tuple[LabelFix, ...]
    summary: FixSummary


@dataclass(frozen=True, eq=False)
class _Ranked:
    """audit.parquet, in its order."""

    index: Places
    given: list[str]
    suggested: list[str | None]
    judged: LabelJudgement


def plan_fix(
    folder: Path,
    out: Path,
    *,
    false_alarms: float,
    gain: bool = True,
    force: bool = False,
    say: Say = lambda line: None,
    tell: Tell = lambda done, total: None,
) -> FixPlan:
    """Decide on every label of the run in `folder`; `gain`: also fit a model before and after."""
    if not 0 < false_alarms < 1:
        raise SettingError(f"--false-alarms is {false_alarms:g}; expected a share between 0 and 1")
    run = open_run(folder, needs=RunFile.SUMMARY)
    check_fix_folder(out, run, force=force)
    errors = run.summary().labels
    known = read_sentinels(folder)
    if errors is None:
        raise DataError(f"{folder} says nothing about its labels; train again")
    ranked = _ranked(run)
    policy = Policy.of(ranked.judged, false_alarms)
    actions = policy.actions(ranked.judged)
    options = read(folder / RunFile.OPTIONS, Options)
    with tempfile.TemporaryDirectory(prefix="reweigh-fix-") as scratch:
        prepared = prepare(options, Path(scratch), say=lambda line: None, progress=_quiet)
        checked = _checked(prepared)
        gained = _gain(prepared, options, false_alarms, say, tell) if gain else None
    notes = tuple(_notes(errors, false_alarms, bool((actions != KEEP).any())))
    unknown = None if errors.pairs_known else errors.wrong
    right = sentinels.right_labels(known, policy, wrong=unknown)
    summary = _summary(run, ranked, actions, checked, right)
    summary = replace(summary, false_alarms=false_alarms, notes=notes)
    if gained is not None:
        summary = replace(
            summary, model=gained.model, model_before=gained.before, model_after=gained.after,
            model_gain=gained.gain, model_gain_interval=gained.interval,
        )  # fmt: skip
    return FixPlan(run, (*checked, *_fixes(ranked, actions)), summary)


def _quiet(what: str, done: int, total: int) -> None:
    """No progress is shown of reading the data again."""


def _ranked(run: TrainedRun) -> _Ranked:
    path = run.path / RunFile.AUDIT
    columns = (
        "index", "given_label", "suggested", "p_wrong", "p_suggested", "flagged_from",
    )  # fmt: skip
    with reading(path):
        table = arrow("parquet").read_table(path, columns=list(columns))
    numbers = {name: table[name].to_numpy() for name in columns if name[0] in "pf"}
    judged = LabelJudgement(
        numbers["p_wrong"],
        np.zeros(len(table), dtype=np.int64),
        numbers["p_suggested"],
        numbers["flagged_from"],
    )
    given, suggested = (table[name].to_pylist() for name in ("given_label", "suggested"))
    return _Ranked(table["index"].to_numpy(), given, suggested, judged)


def _checked(prepared: Prepared) -> list[LabelFix]:
    """Rows of the data that are among the checked ones, and have another label there."""
    task, found = prepared.task, {}
    for part in (task.clean, task.test) if prepared.judged_on == "holdout" else (task.clean,):
        for place, label in zip(part.ids.tolist(), part.targets.tolist(), strict=True):
            row, given = int(prepared.checked_rows[place]), int(prepared.checked_given[place])
            if row >= 0 and given != label:
                names = prepared.classes
                found[row] = LabelFix(
                    row, names[given], names[int(label)], None, None, "it is among the checked rows"
                )
    return [found[row] for row in sorted(found)]


def _fixes(ranked: _Ranked, actions: Places) -> Sequence[LabelFix]:
    fixes = []
    for place in np.flatnonzero(actions != KEEP).tolist():
        wrong = float(ranked.judged.p_wrong[place])
        sure = float(ranked.judged.p_suggested[place])
        name, relabel = ranked.suggested[place], actions[place] == RELABEL
        why = f"its label is wrong with a probability of {_percent(wrong)}; " + (
            f"{name!r} is right with {_percent(sure)}"
            if relabel
            else f"the likeliest other, {name!r}, is too doubtful with {_percent(sure)}"
        )
        fixes.append(
            LabelFix(
                int(ranked.index[place]), ranked.given[place], name if relabel else None,
                wrong, sure, why,
            )
        )  # fmt: skip
    return fixes


def _percent(share: float) -> str:
    return "over 99%" if share > 0.995 else f"{share:.0%}"


def _summary(
    run: TrainedRun,
    ranked: _Ranked,
    actions: Places,
    checked: Sequence[LabelFix],
    right: sentinels.RightLabels,
) -> FixSummary:
    counts = np.bincount(actions, minlength=3)
    return FixSummary(
        data=run.source.data,
        corrected="",
        false_alarms=0.0,
        rows=len(ranked.given),
        kept=int(counts[KEEP]),
        relabelled=int(counts[RELABEL]),
        set_aside=int(counts[SET_ASIDE]),
        checked=len(checked),
        right_before=right.before.share,
        right_before_interval=(right.before.low, right.before.high),
        right_after=right.after.share,
        right_after_interval=(right.after.low, right.after.high),
        relabelled_right=right.relabelled,
        false_alarms_seen=right.alarms,
    )


def _notes(errors: LabelErrors, rate: float, flagged: bool) -> Sequence[str]:
    return [why] if not flagged and (why := too_few(errors, rate)) else []


def too_few(errors: LabelErrors, rate: float) -> str:
    """Why nothing is flagged."""
    needed = errors.needed(rate)
    if errors.checked < needed:
        return (
            f"{errors.checked} checked rows are too few to flag labels at a false-alarm rate of "
            f"{rate:g} where about {errors.wrong.share:.0%} are wrong: it would take about {needed:,}, or "
            "a higher rate"
        )
    return f"no label stands out enough to be flagged at a false-alarm rate of {rate:g}"


@dataclass(frozen=True)
class ModelGain:
    """Accuracies of a model on checked rows, fitted to the data before and after, and the difference."""

    model: str
    before: float
    after: float
    gain: float
    interval: float | None


def _gain(
    prepared: Prepared, options: Options, rate: float, say: Say, tell: Tell
) -> ModelGain | None:
    table = prepared.inspected.kind == "table"
    rows = plain_rows(prepared, seed=options.seed, say=say)
    given = prepared.checked_given[prepared.task.clean.ids.numpy()]
    learner: Learner = Boosting(seed=options.seed) if table else SoftmaxRegression()
    return model_gain(
        rows.data,
        learner,
        rate,
        trees=asks_trees(prepared, options),
        seed=options.seed,
        checked_given=given,
        tell=tell,
    )


def model_gain(
    data: PlainData,
    learner: Learner,
    rate: float,
    *,
    trees: bool,
    seed: int,
    checked_given: Places | None = None,
    tell: Tell = lambda done, total: None,
) -> ModelGain | None:
    """What `learner` gains from corrected labels, on checked rows that had no part in them."""
    m = len(data.labels)
    parts = deal(data.labels, parts=min(PARTS, m), repeats=1, seed=seed)[0]
    before, after = np.empty(m), np.empty(m)
    as_labelled = _fit(learner, data, data.given, np.arange(len(data.given)))
    for done, part in enumerate(parts):
        tell(done, len(parts))
        rest = np.setdiff1d(np.arange(m), part)
        some = replace(
            data,
            features={**data.features, "checked": data.features["checked"][rest]},
            labels=data.labels[rest],
        )
        found = sentinels.suspect(
            some, trees=trees, seed=seed,
            checked_given=None if checked_given is None else checked_given[rest],
        ).train  # fmt: skip
        actions = Policy.of(found, rate).actions(found)
        labels = np.where(actions == RELABEL, found.suggested, data.given)
        kept = np.flatnonzero(actions != SET_ASIDE)
        corrected = _fit(learner, data, labels, kept) if (actions != KEEP).any() else as_labelled
        rows, truth = data.features["checked"][part], data.labels[part]
        before[part] = as_labelled(rows).argmax(1) == truth
        after[part] = corrected(rows).argmax(1) == truth
    tell(len(parts), len(parts))
    gained, error = lead(after, before)
    half = 1.96 * error if np.isfinite(error) else None
    return ModelGain(learner.name, float(before.mean()), float(after.mean()), gained, half)


def _fit(
    learner: Learner, data: PlainData, labels: Places, rows: Places
) -> Callable[[object], Reals]:
    hard = one_hot(labels[rows], data.classes)
    return learner.fit(data.features["train"][rows], hard, np.ones(len(rows))).probabilities
