"""What `summary.json` says of a finished run: figures, gains, warnings, curves. Plain JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from ..audit import Ranking
from ..training import Config, Outcome
from .comparison import METHODS, Judged, gain
from .diagnosis import class_weights, diagnose
from .folder import Json
from .networks import Network
from .preparation import Prepared


def summarise(
    prepared: Prepared,
    plan: Config,
    shape: Network,
    outcome: Outcome,
    rivals: dict[str, Outcome],
    judged: dict[str, Judged],
    ranking: Ranking,
) -> Json:
    """Everything the report and the command line tell."""
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
