"""Every training row ranked by suspicion, in files of which a small part can be read alone.

audit.parquet      the fields of runs.AuditRow
suspects.parquet   the first 100,000 of them, with the row itself and a sentence that says why
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..audit import Ranking, rank_classes, rank_numbers
from ..data import AnyPart, BatchOptions
from ..exchange import write_rows
from ..files import whole_file
from ..runs import AUDIT_COLUMNS, FALSE_ALARMS, SUSPECT_COLUMNS, RunFile
from ..tables import arrow
from ..training import Outcome
from .final_outputs import TrainOutputs
from .label_doubts import LabelDoubts
from .label_sources import LabelSources
from .preparation import Prepared
from .row_examples import label_names, row_examples

MOST, GROUP, PAGE, CHUNK = 100_000, 1_000, 32, 100_000

Column = npt.NDArray[Any]


def rank(
    train: AnyPart,
    outcome: Outcome,
    options: BatchOptions,
    *,
    plain: Outcome | None = None,
    seen: TrainOutputs | None = None,
) -> Ranking:
    """The ranking of a train part, from the run's ledger and its final model.

    plain    a run on the same data with equal weights; with it, the ranking is better on hard tasks
    seen     what the final model said of the part; without it, the model is run on it now
    """
    seen = seen or TrainOutputs(train)
    seen.complete(outcome.model, options)
    if seen.regression:
        return rank_numbers(train.targets.double().numpy(), predicted=seen.values)
    ledger = outcome.ledger.table()
    return rank_classes(
        train.targets.numpy(),
        mean_loss=ledger["mean_loss"],
        zero_share=ledger["zero_share"],
        p_given=seen.p_given,
        rival=seen.rival,
        p_rival=seen.p_rival,
        plain_loss=None if plain is None else plain.ledger.table()["mean_loss"],
    )


def write_ranking(
    folder: Path,
    prepared: Prepared,
    outcome: Outcome,
    ranking: Ranking,
    *,
    posterior: Column | None = None,
    doubts: LabelDoubts | None = None,
    sources: LabelSources | None = None,
) -> None:
    """audit.parquet and suspects.parquet; `posterior` [n] is that of each given label."""
    pa, parquet = arrow(), arrow("parquet")
    ledger = dict(outcome.ledger.table())
    ledger["posterior"] = np.full(len(ranking), np.nan) if posterior is None else posterior
    ledger |= _doubt_columns(len(ranking), doubts)
    write_rows(
        folder / RunFile.AUDIT,
        (
            pa.table(_rows(prepared, ledger, ranking, sources, slice(start, start + CHUNK)))
            for start in range(0, len(ranking), CHUNK)
        ),
    )
    top = min(MOST, len(ranking))
    columns = _rows(prepared, ledger, ranking, sources, slice(0, top))
    index = prepared.train_rows[ranking.order[:top]]
    added = (
        pa.array(list(_reasons(columns, ranking, bool(prepared.classes)))),
        pa.array(row_examples(prepared, index)),
        pa.array(ranking.probability[:top], from_pandas=True),
    )
    columns |= dict(zip(SUSPECT_COLUMNS[len(AUDIT_COLUMNS) :], added, strict=True))
    with whole_file(folder / RunFile.SUSPECTS) as stream:
        # Pages of few rows: one long cell must not make a reader take in thousands of others.
        parquet.write_table(pa.table(columns), stream, row_group_size=GROUP, write_batch_size=PAGE)


def _rows(
    prepared: Prepared,
    ledger: Mapping[str, Column],
    ranking: Ranking,
    sources: LabelSources | None,
    rows: slice,
) -> dict[str, Any]:
    pa = arrow()
    order = ranking.order[rows]
    if prepared.classes:
        given = label_names(prepared, prepared.task.train.targets.numpy()[order])
    else:  # those trained on are scaled, and cut off if far away
        given = [f"{value:.15g}" for value in prepared.numbers[order]]
    values = (
        pa.array(prepared.train_rows[order]),
        pa.array(given, pa.string()),
        pa.array(label_names(prepared, ranking.suggested[rows]), pa.string()),
        pa.array(ranking.suspicion[rows]),
        pa.array(ledger["mean_weight"][order], from_pandas=True),
        pa.array(ledger["zero_share"][order], from_pandas=True),
        pa.array(ledger["seen"][order]),
        pa.array(ledger["posterior"][order], from_pandas=True),
        pa.array(ledger["p_wrong"][order], from_pandas=True),
        pa.array(label_names(prepared, ledger["suggested"][order]), pa.string()),
        pa.array(ledger["p_suggested"][order], from_pandas=True),
        pa.array(ledger["flagged_from"][order] <= FALSE_ALARMS, mask=np.isnan(ledger["flagged_from"][order])),
        pa.array(ledger["flagged_from"][order], from_pandas=True),
        pa.array([None] * len(order) if sources is None else sources.of(order), pa.string()),
        pa.array(ledger["against_share"][order], from_pandas=True),
    )  # fmt: skip
    return dict(zip(AUDIT_COLUMNS, values, strict=True))


def _doubt_columns(rows: int, doubts: LabelDoubts | None) -> dict[str, Column]:
    """By column, [n] in the order of the train part; NaN where nothing is known."""
    names = ("p_wrong", "suggested", "p_suggested", "flagged_from")
    if doubts is None:
        unknown = np.full(rows, np.nan)
        return dict.fromkeys(names, unknown)
    return {name: getattr(doubts, name) for name in names}


def _reasons(columns: Mapping[str, Any], ranking: Ranking, classes: bool) -> Iterator[str]:
    """One plain sentence per row."""
    seen, zero = columns["seen"].to_pylist(), columns["zero_share"].to_pylist()
    given, suggested = columns["given_label"].to_pylist(), columns["suggested_label"].to_pylist()
    against = columns["against_share"].to_pylist()
    for k, looks in enumerate(seen):
        used = "It was in no step of the training"
        if looks:
            used = f"It helped the checked rows in {1 - zero[k]:.0%} of the {looks} steps it was in"
            used += ", and is suspect for its label alone" if zero[k] < 0.5 else ""
            if against[k] is not None:
                used += f"; the model was against its label in {against[k]:.0%} of them"
        if not classes:
            tail = f"; the model expects {suggested[k]}." if suggested[k] is not None else "."
        elif suggested[k] is not None:
            tail = f"; the model is {_percent(ranking.probability[k])} sure of {suggested[k]!r}."
        else:
            tail = f"; the model gives {given[k]!r} {_percent(ranking.probability[k])}."
        yield used + tail


def _percent(share: float) -> str:
    """Never 100%: a model is not that sure."""
    return "over 99%" if share > 0.995 else "under 1%" if share < 0.005 else f"{share:.0%}"
