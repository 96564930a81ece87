"""The ranking of a run as a list of the user's: `reweigh audit`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingError
from ..exchange import format_of, listed, write_rows
from ..runs import AUDIT_COLUMNS, FALSE_ALARMS, RunFile, TrainedRun, open_run, reading_parquet
from ..tables import Piece, arrow
from .fixing import too_few
from .output_files import check_output

CHUNK = 100_000
"""Rows at a time; for each, the data are read once."""


def write_audit_list(
    run: Path,
    out: Path | None,
    *,
    head: int = 0,
    force: bool = False,
    form: str | None = None,
    rows: int | None = None,
    say: Callable[[str], None] = print,
    false_alarms: float = FALSE_ALARMS,
) -> tuple[Path, int, list[dict[str, Any]]]:
    """Write a run's ranking to `out` (RUN/audit.csv); the path, the rows, and the first of them.

    form    one of `exchange.FORMATS`; None: a table
    rows    write the first of the ranking only
    false_alarms    the share of right labels expected among the flagged ones

    Texts and paths are left out of a table, and that is said, where the data are gone or have changed.
    """
    if not 0 < false_alarms < 1:
        raise SettingError(f"--false-alarms is {false_alarms:g}; expected a share between 0 and 1")
    opened = open_run(run, needs=RunFile.SUMMARY)
    chosen, out = format_of(form, out), out or run / RunFile.AUDIT_LIST
    check_output(out, opened, endings=chosen.endings, beside=chosen.beside(out), force=force)
    _, first = read_audit_list(run, head=head, false_alarms=false_alarms)
    pieces = RankedPieces(opened, rows, false_alarms)
    try:
        written = chosen.write(opened.source, pieces, out)
    except DataError as error:
        if chosen.name != "table":
            raise
        say(f"the list has no texts and paths: {error}")
        written = write_rows(out, (listed(piece, opened.source) for piece in pieces))
    return out, written, first


def read_audit_list(
    run: Path, *, head: int, false_alarms: float = FALSE_ALARMS
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows a run ranked, and the first of them."""
    opened = open_run(run, needs=RunFile.SUMMARY)
    audit = opened.path / RunFile.AUDIT
    with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
        first = next(file.iter_batches(max(head, 1), columns=list(AUDIT_COLUMNS)))
        rows = listed(flagged_at(first, false_alarms), opened.source).to_pylist()
        return file.metadata.num_rows, rows[:head] if head > 0 else []


def label_notes(run: Path, false_alarms: float) -> list[str]:
    """How many labels are flagged at this rate, and how many are wrong in all; nothing if unknown."""
    opened = open_run(run, needs=RunFile.SUMMARY)
    try:
        summary = opened.summary()
    except DataError:  # of an earlier version: the list is good without
        return []
    errors, n = summary.labels, summary.train_rows
    if errors is None:
        return []
    wrong = errors.wrong
    audit = opened.path / RunFile.AUDIT
    with reading_parquet(audit):
        rates = arrow("parquet").read_table(audit, columns=["flagged_from"])["flagged_from"]
    flagged = int((rates.to_numpy() <= false_alarms).sum())
    notes = [
        f"flagged: {flagged:,}, of which at most {false_alarms:.0%} are expected to be right"
        if flagged
        else f"flagged: none; {too_few(errors, false_alarms)}",
        f"wrong in all: about {n * wrong.share:,.0f} of {n:,} ({wrong.share:.1%}; "
        f"{wrong.low:.1%} to {wrong.high:.1%})",
    ]
    if not errors.pairs_known:
        notes.append(errors.pairs_told())
    pairs = [
        f"{each.given} should be {each.true}: {n * each.share.share:,.0f}"
        for each in errors.pairs[:3]
        if n * each.share.share >= 0.5
    ]
    if pairs:
        notes.append("most often: " + "; ".join(pairs))
    if errors.sources:
        worst = [
            f"{each.source} {each.wrong.share:.0%} ({each.wrong.low:.0%} to {each.wrong.high:.0%})"
            for each in errors.sources[:3]
        ]
        notes.append(f"by source, the worst of {len(errors.sources)}: " + "; ".join(worst))
    return notes


def flagged_at(piece: Piece, false_alarms: float) -> Piece:
    """Rows of audit.parquet with the flags of another rate; runs of earlier versions have none."""
    if "flagged_from" not in piece.schema.names:
        return piece
    flags = arrow("compute").less_equal(piece.column("flagged_from"), false_alarms)
    return piece.set_column(piece.schema.get_field_index("flag"), "flag", flags)


@dataclass(frozen=True)
class RankedPieces:
    """The first `rows` of a run's ranking, None for all, as record batches; can be read again."""

    run: TrainedRun
    rows: int | None = None
    false_alarms: float = FALSE_ALARMS

    def __iter__(self) -> Iterator[Piece]:
        audit, left = self.run.path / RunFile.AUDIT, self.rows
        with reading_parquet(audit), arrow("parquet").ParquetFile(audit) as file:
            for batch in file.iter_batches(CHUNK, columns=list(AUDIT_COLUMNS)):
                piece = flagged_at(batch, self.false_alarms)
                yield piece if left is None else piece.slice(0, left)
                left = None if left is None else left - piece.num_rows
                if left is not None and left <= 0:
                    return
