"""What a finished run found: figures, gains, warnings, curves."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..audit import Ranking
from ..runs import LabelPair, Network, RunSummary, TrainingPlan, UnusedColumn
from ..training import Config, Outcome
from .comparison import Judged, gain
from .diagnosis import class_weights, diagnose
from .preparation import Prepared


def summarise(
    prepared: Prepared,
    plan: Config,
    shape: Network,
    outcome: Outcome,
    rivals: dict[str, Outcome],
    judged: dict[str, Judged],
    ranking: Ranking,
) -> RunSummary:
    """Everything the report and the command line tell."""
    ours, kept = judged["reweigh"], bool(prepared.judged_on)
    comparison = tuple(gain(name, ours, judged[name]) for name in rivals)
    suggested = ranking.suggested
    confident = suggested >= 0 if prepared.classes else ~np.isnan(suggested)
    unused = getattr(prepared.found.encoder, "unused", ())
    return RunSummary(
        metric="accuracy" if prepared.classes else "mean absolute error",
        judged_on=prepared.judged_on,
        judged_rows=len(prepared.task.test) if kept else 0,
        figure=ours.figure if kept else None,
        interval=ours.interval if kept else None,
        comparison=comparison if kept else (),
        train_rows=len(prepared.task.train),
        clean_rows=len(prepared.task.clean),
        suggestions=int(confident.sum()),
        confusion=_confusion(prepared, ranking),
        class_weights=class_weights(prepared, outcome),
        warnings=tuple(diagnose(prepared, outcome, comparison)),
        curves={n: tuple(o.curve) for n, o in {"reweigh": outcome, **rivals}.items()},
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
