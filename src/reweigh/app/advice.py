"""What a user should know before trusting a run, in plain words, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..runs import Advice, MethodComparison, RunFile
from ..training import Outcome
from .preparation import Prepared

FEW_CLEAN = 5
STARVED = 0.25
"""A class whose rows have a smaller mean weight than this hardly counts; 1 is plain training."""


def advise(
    prepared: Prepared, outcome: Outcome, comparison: Sequence[MethodComparison]
) -> list[Advice]:
    """Everything there is to say."""
    advice = [*_clean_set(prepared), *_starved(prepared, outcome), *_learnt(prepared, outcome)]
    advice += _judged(prepared, comparison)
    unseen = int(np.sum(outcome.ledger.table()["seen"] == 0))
    if unseen:
        advice.append(Advice(
            f"{unseen:,} training rows were in no batch, so their suspicion is the model's alone.",
            "Train for more steps with --steps.",
        ))  # fmt: skip
    if len(prepared.unreadable):
        advice.append(Advice(
            f"{len(prepared.unreadable):,} files could not be read and were left out.",
            f"They are listed in {RunFile.UNREADABLE}; save them again or remove them.",
        ))  # fmt: skip
    return advice


def _clean_set(prepared: Prepared) -> list[Advice]:
    clean = prepared.task.clean
    if not prepared.classes:
        few = len(clean) < 30
        return [Advice(
            f"There are only {len(clean)} clean rows.",
            "Check some more, spread over the range of the target.",
        )] if few else []  # fmt: skip
    counts = np.bincount(clean.targets.numpy(), minlength=len(prepared.classes))
    scarce = [prepared.classes[c] for c in np.flatnonzero(counts < FEW_CLEAN)]
    if not scarce:
        return []
    listed = ", ".join(scarce[:8]) + (", ..." if len(scarce) > 8 else "")
    return [Advice(
        f"{len(scarce)} of {len(counts)} classes have fewer than {FEW_CLEAN} clean rows: {listed}.",
        "Check a few more of these: one odd clean row can then mislead the weights.",
    )]  # fmt: skip


def _starved(prepared: Prepared, outcome: Outcome) -> list[Advice]:
    if not prepared.classes:
        return []
    weights = class_weights(prepared, outcome)
    low = [name for name, weight in weights.items() if weight is not None and weight < STARVED]
    if not low:
        return []
    return [Advice(
        f"Rows given {', '.join(low[:8])} hardly counted in training.",
        "Either most of these labels are wrong, or the clean rows of the class are not like the "
        "rest: look at some of both.",
    )]  # fmt: skip


def _learnt(prepared: Prepared, outcome: Outcome) -> list[Advice]:
    accuracy = outcome.metrics.get("clean_accuracy")
    if prepared.classes and accuracy is not None and accuracy < 0.6:
        return [Advice(
            f"The model gets only {accuracy:.0%} of the clean rows right that guided it.",
            "It has not learnt the task: try more steps (--steps), a larger network (--hidden), or "
            "ask whether the columns can tell the classes apart at all.",
        )]  # fmt: skip
    return []


def _judged(prepared: Prepared, comparison: Sequence[MethodComparison]) -> list[Advice]:
    if not prepared.judged_on:
        return [Advice(
            "Nothing was kept for judging, so there is no honest figure of how good the model is.",
            "Give --test FILE with checked rows, or --holdout 0.3 to set clean rows aside.",
        )]  # fmt: skip
    advice = []
    if len(prepared.task.test) < 100:
        advice.append(Advice(
            f"The model was judged on {len(prepared.task.test)} rows only; the figures are rough.",
            "Give a larger --test file with checked rows.",
        ))  # fmt: skip
    for line in comparison:
        half = line.interval
        if line.method == "uniform" and half is not None and line.gain <= half:
            verb = "is worse than" if line.gain < -half else "is not clearly better than"
            advice.append(Advice(
                f"Here reweighing {verb} plain training.",
                "Perhaps few labels are wrong, or the clean rows are too few or unlike the rest. The "
                f"plain model is in {RunFile.COMPARE}/uniform; more clean rows make the comparison sharper.",
            ))  # fmt: skip
    return advice


def class_weights(prepared: Prepared, outcome: Outcome) -> dict[str, float | None]:
    """The mean weight of the rows given each class; 1 is what a row counts in plain training."""
    weights = outcome.ledger.table()["mean_weight"]
    given = prepared.task.train.targets.numpy()
    means: dict[str, float | None] = {}
    for c, name in enumerate(prepared.classes):
        mine = weights[(given == c) & ~np.isnan(weights)]
        means[name] = float(mine.mean()) if len(mine) else None
    return means
