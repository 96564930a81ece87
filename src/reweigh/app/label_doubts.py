"""The probability that a label is wrong, for the rows of a run (sentinels/suspicion.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .. import sentinels
from ..candidates import Places, Reals
from .contest import FEWEST
from .inspection import Say
from .label_sources import LabelSources
from .options import Options
from .plain_rows import PlainRows, plain_rows
from .preparation import Prepared


@dataclass(frozen=True, eq=False)
class LabelDoubts:
    """Of each train row, [n]; NaN, and -1 as a class, of rows that plain models do not learn.

    p_wrong, suggested, p_suggested, flagged_from    as in `sentinels.LabelJudgement`
    found                                            of the sentinels, and of all rows together
    """

    p_wrong: Reals
    suggested: Places
    p_suggested: Reals
    flagged_from: Reals
    found: sentinels.Suspicion


def doubt_labels(
    prepared: Prepared,
    options: Options,
    *,
    rows: PlainRows | None,
    say: Say,
    tell: Callable[[int, int], None],
) -> LabelDoubts | None:
    """Judge the label of every train row; None in a regression, or with too few checked rows."""
    if not prepared.classes or len(prepared.task.clean) < FEWEST:
        return None
    rows = rows or plain_rows(prepared, seed=options.seed, say=say)
    found = sentinels.suspect(
        rows.data, trees=asks_trees(prepared, options), seed=options.seed, tell=tell,
        checked_given=prepared.checked_given[prepared.task.clean.ids.numpy()],
    )  # fmt: skip
    n, judged = len(prepared.task.train), found.train

    def spread(values: Reals, nothing: float) -> Reals:
        whole = np.full(n, nothing)
        whole[rows.sample] = values
        return whole

    return LabelDoubts(
        spread(judged.p_wrong, np.nan),
        spread(judged.suggested.astype(np.float64), -1).astype(np.int64),
        spread(judged.p_suggested, np.nan),
        spread(judged.flagged_from, np.nan),
        found,
    )


def asks_trees(prepared: Prepared, options: Options) -> bool:
    """Whether forests are among the witnesses: for tables, unless it has to be quick."""
    quick = options.quick or options.method is not None
    return prepared.inspected.kind == "table" and not quick


def weighed_rows(
    prepared: Prepared,
    rows: PlainRows,
    sources: LabelSources,
    doubts: LabelDoubts | None,
    *,
    say: Say,
) -> PlainRows:
    """The rows of plain models, counted by how often their sources are wrong (--weigh-sources)."""
    if doubts is None:
        say("sources are not weighed: in a regression, or with few checked rows, nobody knows how")
        return rows
    counts = sources.row_weights(doubts.p_wrong, len(prepared.classes))[rows.sample]
    say(f"a row counts {counts.min():.2f} to {counts.max():.2f}, by its source")
    data = rows.data
    return replace(rows, data=replace(data, counts=data.train_counts() * counts))
