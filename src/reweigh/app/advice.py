"""What a user should know before trusting a run, in plain words, and what to do about it."""

from collections.abc import Iterator, Sequence

import numpy as np

from ..runs import Advice, MethodComparison, RunFile
from ..training import Outcome
from .contest import Contest
from .preparation import Prepared

FEW_CLEAN = 5
STARVED = 0.25
"""A class whose rows have a smaller mean weight than this hardly counts; 1 is plain training."""


def advise(
    prepared: Prepared,
    outcome: Outcome,
    comparison: Sequence[MethodComparison],
    contest: Contest | None,
) -> Iterator[Advice]:
    """Everything there is to say."""
    if prepared.classes:
        yield from _classes(prepared, outcome)
    elif len(prepared.task.clean) < 30:
        yield Advice(
            f"There are only {len(prepared.task.clean)} clean rows.",
            "Check some more, spread over the range of the target.",
        )
    if contest is not None and not prepared.judged_on:
        yield from _judged_by_checked(prepared, contest)
    else:
        yield from _judged(prepared, comparison)
    if unseen := int(np.sum(outcome.ledger.table()["seen"] == 0)):
        yield Advice(
            f"{unseen:,} training rows were in no batch, so their suspicion is the model's alone.",
            "Train for more steps with --steps.",
        )
    if len(prepared.unreadable):
        yield Advice(
            f"{len(prepared.unreadable):,} files could not be read and were left out.",
            f"They are listed in {RunFile.UNREADABLE}; save them again or remove them.",
        )


def _classes(prepared: Prepared, outcome: Outcome) -> Iterator[Advice]:
    """Classes with few clean rows, classes that hardly counted, and whether anything was learnt."""
    counts = np.bincount(prepared.task.clean.targets.numpy(), minlength=len(prepared.classes))
    scarce = [prepared.classes[c] for c in np.flatnonzero(counts < FEW_CLEAN)]
    if scarce:
        listed = ", ".join(scarce[:8]) + (", ..." if len(scarce) > 8 else "")
        yield Advice(
            f"{len(scarce)} of {len(counts)} classes have fewer than {FEW_CLEAN} clean rows: {listed}.",
            "Check a few more of these: one odd clean row can then mislead the weights.",
        )
    weights = class_weights(prepared, outcome)
    low = [name for name, weight in weights.items() if weight is not None and weight < STARVED]
    if low:
        yield Advice(
            f"Rows given {', '.join(low[:8])} hardly counted in training.",
            "Either most of these labels are wrong, or the clean rows of the class are not like the "
            "rest: look at some of both.",
        )
    accuracy = outcome.metrics.get("clean_accuracy")
    if accuracy is not None and accuracy < 0.6:
        yield Advice(
            f"The reweighed network gets only {accuracy:.0%} of the clean rows right that guided it.",
            "It has not learnt the task: try more steps (--steps), a larger network (--hidden), or "
            "ask whether the columns can tell the classes apart at all.",
        )


def _judged_by_checked(prepared: Prepared, contest: Contest) -> Iterator[Advice]:
    kind = "validation" if prepared.validated else "checked"
    rows, judged = len(contest.honest), int(np.sum(~np.isnan(contest.honest)))
    if judged < rows:
        yield Advice(
            f"{judged} of the {rows} checked rows judged what was kept, as its networks take long to train. Its figure "
            "is moved by how easy these rows are for the other candidates, which all rows judged.",
            "Give --test or --validation FILE with checked rows for a sharper one.",
        )
    elif rows < 100:
        yield Advice(
            f"{rows} {kind} rows judged the candidates; the figures are rough.",
            "Check more rows, or give --test FILE with checked rows.",
        )


def _judged(prepared: Prepared, comparison: Sequence[MethodComparison]) -> Iterator[Advice]:
    if not prepared.judged_on:
        yield Advice(
            "Nothing was kept for judging, so there is no honest figure of how good the model is.",
            "Give --test FILE with checked rows, or --holdout 0.3 to set clean rows aside.",
        )
        return
    if len(prepared.task.test) < 100:
        yield Advice(
            f"The model was judged on {len(prepared.task.test)} rows only; the figures are rough.",
            "Give a larger --test file with checked rows.",
        )
    for line in comparison:
        half = line.interval
        if line.method == "uniform" and half is not None and line.gain <= half:
            verb = "is worse than" if line.gain < -half else "is not clearly better than"
            yield Advice(
                f"Here reweighing {verb} plain training.",
                "Perhaps few labels are wrong, or the clean rows are too few or unlike the rest. The "
                f"plain model is in {RunFile.COMPARE}/uniform; more clean rows make the comparison sharper.",
            )


def class_weights(prepared: Prepared, outcome: Outcome) -> dict[str, float | None]:
    """The mean weight of the rows given each class; 1 is what a row counts in plain training."""
    weights = outcome.ledger.table()["mean_weight"]
    given = prepared.task.train.targets.numpy()
    means: dict[str, float | None] = {}
    for c, name in enumerate(prepared.classes):
        mine = weights[(given == c) & ~np.isnan(weights)]
        means[name] = float(mine.mean()) if len(mine) else None
    return means
