"""What a run will do, in order, and about how much work each stage is: for the time that is left.

The unit is a step of plain training. A step of reweighing is about REWEIGHED of them; plain models take
about as long as some part of a training. These are guesses, and a clock corrects them as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training import Config
from .network_candidates import FINE_TUNE_STEPS

REWEIGHED = 3.0
PLAIN_MODEL, TREES, RANKING = 0.1, 0.4, 0.3
"""Shares of a plain training."""


@dataclass(frozen=True)
class Stage:
    """`name` is "training METHOD" or "judging CANDIDATE"."""

    name: str
    work: float


def stages(
    plan: Config, candidates: Sequence[str], *, folds: int, compare: Sequence[str]
) -> tuple[Stage, ...]:
    """Of a run that trains `plan` and judges `candidates`, each network on `folds` parts."""
    steps = float(plan.steps)
    trained = [Stage("training reweigh", REWEIGHED * steps)]
    trained += [Stage(f"training {method}", steps) for method in compare]
    networks = {
        "reweigh": folds * REWEIGHED * steps,
        "fine_tuned": (folds + 1) * float(FINE_TUNE_STEPS),
        "plain": 0.0 if "uniform" in compare else steps,
    }
    judged = [
        Stage(f"judging {name}", networks.get(name, steps * (PLAIN_MODEL if name.startswith("linear") else TREES)))
        for name in candidates
    ]  # fmt: skip
    return (*trained, *judged, Stage("judging labels", RANKING * steps))
