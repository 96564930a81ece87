"""Checked rows that the other checked rows and the data contradict (sentinels/contradictions.py)."""

from dataclasses import replace

import numpy as np

from ..runs import Advice, CheckedDoubt, RunSummary
from ..sentinels import contradictions
from .label_doubts import LabelDoubts
from .preparation import Prepared
from .row_examples import label_names

LISTED = 5
FILES = {"clean": "the clean file", "data": "the data"}


def with_checked_doubts(
    summary: RunSummary, prepared: Prepared, doubts: LabelDoubts | None
) -> RunSummary:
    """The summary with those that are named, and a warning before all others."""
    if doubts is None:
        return summary
    named = checked_doubts(prepared, doubts)
    return replace(summary, checked_doubts=named, warnings=(*_advice(named), *summary.warnings))


def checked_doubts(prepared: Prepared, doubts: LabelDoubts) -> tuple[CheckedDoubt, ...]:
    """Those that are named, the surest first."""
    clean = prepared.task.clean
    found = contradictions(clean.targets.numpy(), doubts.found.testimony)
    files = [(role, row) for role, rows in prepared.clean_rows for row in rows.tolist()]
    labels, rivals = (label_names(prepared, each) for each in (clean.targets.numpy(), found.rival))
    order = np.argsort(found.p_label - found.p_rival, kind="stable")
    return tuple(
        CheckedDoubt(
            *files[int(clean.ids[place])], labels[place] or "", float(found.p_label[place]),
            rivals[place] or "", float(found.p_rival[place]),
        )
        for place in order.tolist()
        if found.named[place]
    )  # fmt: skip


def _advice(found: tuple[CheckedDoubt, ...]) -> tuple[Advice, ...]:
    """What to say of them; nothing if there are none."""
    if not found:
        return ()
    listed = "; ".join(
        f"row {each.row} of {FILES[each.file]}, checked as {each.label!r}, looks like {each.rival!r}"
        for each in found[:LISTED]
    )
    more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
    many = f"{len(found)} checked rows look" if len(found) > 1 else "A checked row looks"
    return (
        Advice(
            f"{many} wrong to models of the other checked rows and the data: {listed}{more}.",
            "Look there first: a wrong checked row misleads the weights of many others. Correct or "
            "remove it, and train again; if it is right, leave it.",
        ),
    )
