"""The results of a finished run: figures, gains, warnings, curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..audit import Ranking
from ..runs import LabelPair, Network, RunSummary, TrainingPlan, UnusedColumn
from ..training import Config, Outcome
from .advice import advise, class_weights
from .comparison import figure, gain, interval
from .final_outputs import TestOutputs
from .preparation import Prepared


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
) -> RunSummary:
    """Everything the report and the command line tell; `runs` by method, that of `plan` first."""
    outcome, ours = runs[plan.method].outcome, runs[plan.method].test
    rivals = {name: run.test for name, run in runs.items() if name != plan.method}
    comparison = tuple(gain(name, ours, theirs) for name, theirs in rivals.items())
    kept = bool(prepared.judged_on)
    suggested = ranking.suggested
    confident = suggested >= 0 if prepared.classes else ~np.isnan(suggested)
    unused = getattr(prepared.inspected.encoder, "unused", ())
    return RunSummary(
        metric="accuracy" if prepared.classes else "mean absolute error",
        judged_on=prepared.judged_on,
        judged_rows=len(prepared.task.test) if kept else 0,
        figure=figure(ours) if kept else None,
        interval=interval(ours) if kept else None,
        comparison=comparison if kept else (),
        train_rows=len(prepared.task.train),
        clean_rows=len(prepared.task.clean),
        suggestions=int(confident.sum()),
        confusion=_confusion(prepared, ranking),
        class_weights=class_weights(prepared, outcome),
        warnings=tuple(advise(prepared, outcome, comparison)),
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
    )


def _confusion(prepared: Prepared, ranking: Ranking) -> tuple[LabelPair, ...]:
    """given -> suggested, with counts, the commonest first."""
    if not prepared.classes:
        return ()
    given = prepared.task.train.targets.numpy()[ranking.order]
    there = ranking.suggested >= 0
    pairs = Counter(zip(given[there].tolist(), ranking.suggested[there].tolist(), strict=True))
    name = prepared.classes.__getitem__
    return tuple(LabelPair(name(g), name(s), count) for (g, s), count in pairs.most_common(200))
