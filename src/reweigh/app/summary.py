"""The results of a finished run: figures, gains, warnings, curves.

How much better than another method, and how sure that is:

classes      gain = accuracy ours - accuracy theirs, of the same test rows: with b rows only
             ours gets right, c only theirs, of n, each count raised by 1/2 (Agresti and Min,
             2005):   gain +- 1.96 sqrt(b + c - (b - c)^2 / n) / n
regression   gain = mean absolute error theirs - ours; 1.96 standard errors of the differences
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..audit import Ranking
from ..candidates import expect
from ..runs import (
    LabelErrors,
    LabelPair,
    MethodComparison,
    Network,
    RunSummary,
    TrainingPlan,
    UnusedColumn,
)
from ..training import Config, Outcome
from .advice import advise, class_weights
from .contest import Contest
from .final_outputs import TestOutputs, Values
from .preparation import Prepared

METHODS = {"uniform": "plain", "random": "random weights"}
Z = 1.96


@dataclass(frozen=True)
class JudgedRun:
    """A finished run, and what its final model says of the test rows."""

    outcome: Outcome
    test: TestOutputs


def summarise(
    prepared: Prepared,
    plan: Config,
    shape: Network,
    runs: Mapping[str, JudgedRun],
    ranking: Ranking,
    *,
    contest: Contest | None = None,
    labels: LabelErrors | None = None,
) -> RunSummary:
    """Everything the report and the command line tell; `runs` by method, that of `plan` first."""
    outcome, ours = runs[plan.method].outcome, runs[plan.method].test
    rivals = {name: run.test for name, run in runs.items() if name != plan.method}
    comparison = tuple(gain(name, ours, theirs) for name, theirs in rivals.items())
    kept = bool(prepared.judged_on)
    judged_on, right, easy = _judged(prepared, ours, contest)
    worth = expect(right, easy, shares=not ours.regression) if judged_on else None
    suggested = ranking.suggested
    confident = suggested >= 0 if prepared.classes else ~np.isnan(suggested)
    unused = getattr(prepared.inspected.encoder, "unused", ())
    return RunSummary(
        metric="accuracy" if prepared.classes else "mean absolute error",
        judged_on=judged_on,
        judged_rows=int(np.sum(~np.isnan(right))),
        figure=None if worth is None else worth.figure,
        interval=None if worth is None else worth.interval,
        comparison=comparison if kept else (),
        train_rows=len(prepared.task.train),
        clean_rows=len(prepared.task.clean),
        suggestions=int(confident.sum()),
        confusion=_confusion(prepared, ranking),
        class_weights=class_weights(prepared, outcome),
        warnings=tuple(advise(prepared, outcome, comparison, contest)),
        curves={name: tuple(run.outcome.curve) for name, run in runs.items()},
        metrics=outcome.metrics,
        plan=TrainingPlan(
            method=plan.method,
            steps=plan.steps,
            batch=plan.batch.size,
            clean_batch=plan.batch.clean_size,
            learning_rate=plan.optimizer.learning_rate,
            seed=plan.seed,
            network=shape,
        ),
        left_out=tuple(UnusedColumn(column.name, column.why) for column in unused),
        candidates=() if contest is None else contest.figures,
        judged_by="" if contest is None else contest.judged_by,
        expected=None
        if contest is None
        else expect(contest.honest, contest.easy, shares=not ours.regression).figure,
        why_chosen="" if contest is None else contest.why,
        labels=labels,
        notes=prepared.inspected.notes,
    )


def _judged(
    prepared: Prepared, ours: TestOutputs, contest: Contest | None
) -> tuple[str, Values, Values | None]:
    """What judged the kept model, each row's verdict, and how easy the row is, where only a part judged."""
    if contest is None:
        return prepared.judged_on, ours.values if prepared.judged_on else np.empty(0), None
    if prepared.judged_on:
        return prepared.judged_on, contest.test_right, None
    return "validation" if prepared.validated else "checked", contest.honest, contest.easy


def _confusion(prepared: Prepared, ranking: Ranking) -> tuple[LabelPair, ...]:
    """given -> suggested, with counts, the commonest first."""
    if not prepared.classes:
        return ()
    given = prepared.task.train.targets.numpy()[ranking.order]
    there = ranking.suggested >= 0
    pairs = Counter(zip(given[there].tolist(), ranking.suggested[there].tolist(), strict=True))
    name = prepared.classes.__getitem__
    return tuple(LabelPair(name(g), name(s), count) for (g, s), count in pairs.most_common(200))


def figure(judged: TestOutputs) -> float:
    """Accuracy, or mean absolute error."""
    return float(judged.values.mean())


def gain(method: str, ours: TestOutputs, theirs: TestOutputs) -> MethodComparison:
    """How much better ours is than `method`."""
    n = len(ours.values)
    half: float | None = None
    if not ours.regression:
        better = figure(ours) - figure(theirs)
        b = float(np.sum(ours.values > theirs.values)) + 0.5
        c = float(np.sum(ours.values < theirs.values)) + 0.5
        half = Z * float(np.sqrt(b + c - (b - c) ** 2 / (n + 2))) / (n + 2)
    else:
        differences = theirs.values - ours.values
        better = float(differences.mean())
        if n > 1:
            half = Z * float(differences.std(ddof=1)) / n**0.5
    return MethodComparison(method, METHODS[method], figure(theirs), better, half)
