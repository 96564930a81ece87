"""What a review leaves behind, written into the run folder on demand, each file whole or not at all.

    corrected.csv   the data with the decisions carried out: new labels in the target column, dropped rows
    (or .parquet)   left out, all else as it was; for images a listing path,label
    confirmed.csv   index,label of the rows a person kept or relabelled
    changes.diff    index: given -> new, to read

Cells of a .csv that a spreadsheet would run get a leading apostrophe, unless `exact`. Data are streamed:
a file of any size takes the memory of its longest record.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from ..files import whole_file
from . import showing
from .corrections import Corrections, correct_delimited, correct_listing, correct_parquet
from .decisions import Decision, check_shape, read
from .run import Run
from .spreadsheets import harmless
from .suspects import Suspects

CONFIRMED, CHANGES = "confirmed.csv", "changes.diff"
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Exported:
    """The files, and what they hold; `guarded` counts cells of the data given an apostrophe."""

    files: tuple[Path, ...]
    relabelled: int
    dropped: int
    confirmed: int
    guarded: int


def export(
    run: Run, suspects: Suspects, standing: Mapping[int, Decision], *, exact: bool = False
) -> Exported:
    """Write the three files from the decisions that stand."""
    given = _given(run, suspects, standing)
    corrections = Corrections(
        given=given,
        labels={
            index: made.label
            for index, made in standing.items()
            if made.label is not None and made.label != given[index]
        },
        dropped=frozenset(i for i, made in standing.items() if made.action == "drop"),
        safe=str if exact else harmless,
    )
    corrected = run.folder / corrected_name(run)
    with whole_file(corrected) as fresh:
        guarded = _correct(run, suspects, corrections, fresh)
    confirmed = {
        index: made.label if made.label is not None else given[index]
        for index, made in standing.items()
        if made.action in ("keep", "relabel")
    }
    with whole_file(run.folder / CONFIRMED) as fresh:
        _write_confirmed(fresh, confirmed, corrections)
    with whole_file(run.folder / CHANGES) as fresh:
        fresh.write_text("".join(_changes(corrections)), encoding="utf-8")
    return Exported(
        files=(corrected, run.folder / CONFIRMED, run.folder / CHANGES),
        relabelled=len(corrections.labels),
        dropped=len(corrections.dropped),
        confirmed=len(confirmed),
        guarded=guarded,
    )


def export_run(run: Run, *, exact: bool = False) -> Exported:
    """Write the three files from what is on the disk, whether or not a page is open."""
    history, _ = read(run.decisions, lambda made: check_shape(made, rows=run.rows, label=run.label))
    return export(run, Suspects(run.suspects), history.standing(), exact=exact)


def corrected_name(run: Run) -> str:
    """Parquet stays parquet, with its types; all else becomes text."""
    return "corrected.parquet" if _is_parquet(run) else "corrected.csv"


def _is_parquet(run: Run) -> bool:
    if run.kind == "images":
        return False
    try:
        with run.data.open("rb") as stream:
            return stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except FileNotFoundError:
        raise DataError(
            f"there is no {run.data}, which the run was trained on; was it moved?"
        ) from None


def _correct(run: Run, suspects: Suspects, corrections: Corrections, out: Path) -> int:
    if run.kind == "images":
        touched = [i for i in corrections.given if corrections.touches(i)]
        return correct_listing(run, corrections, out, paths=_paths(run, suspects, touched))
    return (correct_parquet if _is_parquet(run) else correct_delimited)(run, corrections, out)


def _paths(run: Run, suspects: Suspects, touched: list[int]) -> dict[str, int]:
    """The paths of touched rows, which only suspects have."""
    places = {suspects.position(index): index for index in touched}
    if None in places:
        raise DataError(
            f"row {places[None]} was decided on, but {run.suspects.name} no longer lists it, so its image "
            "is unknown; undo that decision, or audit again with more suspects"
        )
    return {
        text: places[place] for place, text in enumerate(suspects.examples()) if place in places
    }


def _given(run: Run, suspects: Suspects, standing: Mapping[int, Decision]) -> dict[int, str]:
    """The given label of every row decided on, in the order of the rows."""
    given: dict[int, str] = {}
    for index in standing:
        position = suspects.position(index)
        if position is not None:
            given[index] = suspects.given.name(position) or ""
    lacking = set(standing) - set(given)
    if lacking:  # suspects of an earlier audit
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(run.audit) as file:
            for batch in file.iter_batches(columns=["index", "given_label"]):
                for index, label in zip(*(column.to_pylist() for column in batch), strict=True):
                    if index in lacking:
                        given[index] = label or ""
    return {index: given[index] for index in sorted(given)}


def _write_confirmed(out: Path, confirmed: Mapping[int, str], corrections: Corrections) -> None:
    with out.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("index", "label"))
        writer.writerows((index, corrections.safe(label)) for index, label in confirmed.items())


def _changes(corrections: Corrections) -> Iterator[str]:
    yield f"# {len(corrections.labels)} relabelled, {len(corrections.dropped)} dropped\n"
    for index, given in corrections.given.items():
        if corrections.touches(index):
            dropped = index in corrections.dropped
            new = "(dropped)" if dropped else showing.label(corrections.labels[index])
            yield f"{index}: {showing.label(given)} -> {new}\n"
