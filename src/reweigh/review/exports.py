"""What a review exports into the run folder, each file whole or not at all.

    corrected.csv   the data with the decisions carried out: new labels in the target column, dropped rows
    (.tsv, .jsonl,  left out, all else as it was; for images a listing path,label; for a folder of
    .parquet, .xlsx) Hugging Face's a Parquet file
    confirmed.csv   index,label of the rows a person kept or relabelled
    dropped.csv     index of the rows a person dropped
    changes.diff    index: given -> new, to read

Cells of a .csv that a spreadsheet would run get a leading apostrophe, unless `exact`. Data are streamed:
a file of any size takes the memory of its longest record.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import DataError
from ..files import whole_file, write_whole
from ..runs import RunFile, RunSource, TrainedRun
from ..tables import EXCEL, JSON_LINES, arrow, is_arrow_folder
from ..text import harmless
from . import visible_text
from .corrections import (
    Corrected,
    Corrections,
    correct_arrow_folder,
    correct_delimited,
    correct_listing,
    correct_parquet,
)
from .corrections_excel import correct_excel
from .corrections_json import correct_json_lines
from .corrections_shards import are_parquet, correct_shards, shard_form
from .decisions import Decision, check_shape, read
from .suspects import Suspects

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
    run: TrainedRun, suspects: Suspects, standing: Mapping[int, Decision], *, exact: bool = False
) -> Exported:
    """Write the four files from the decisions that stand."""
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
    files = corrected, confirmed_list, dropped_list, changes = exported_files(run)
    with whole_file(corrected) as stream:
        met = correct(
            run.source, corrections, stream, paths=lambda: _paths(suspects, corrections.changed)
        )
    # Given numbers were rounded on the way through the model; the data have them as they are.
    exactly = met.labels if run.source.task == "regression" else given
    confirmed = {
        index: made.label if made.label is not None else exactly[index]
        for index, made in standing.items()
        if made.action in ("keep", "relabel")
    }
    write_whole(confirmed_list, _confirmed(confirmed, corrections))
    dropped = ("index", *sorted(corrections.dropped))
    write_whole(dropped_list, "".join(f"{line}\n" for line in dropped))
    write_whole(changes, "".join(_changes(corrections)))
    return Exported(
        files=files,
        relabelled=len(corrections.labels),
        dropped=len(corrections.dropped),
        confirmed=len(confirmed),
        guarded=met.guarded,
    )


def export_run(run: TrainedRun, *, exact: bool = False) -> Exported:
    """Write the four files from what is on the disk, whether or not a page is open."""
    source = run.source
    history, _ = read(
        run.decisions, lambda made: check_shape(made, rows=source.rows, label=source.label)
    )
    return export(run, Suspects(run.suspects), history.standing(), exact=exact)


def exported_files(run: TrainedRun) -> tuple[Path, ...]:
    """Where the four files go. Data keep their form, if it is one that is written here; else CSV."""
    corrected = RunFile.CORRECTED_PARQUET if _is_parquet(run.source) else RunFile.CORRECTED_TEXT
    if shard_form(run.source).endswith((".tsv", ".tsv.gz")):
        corrected = RunFile.CORRECTED_TABS
    if _is_json_lines(run.source):
        corrected = RunFile.CORRECTED_LINES
    if _is_excel(run.source):
        corrected = RunFile.CORRECTED_SHEET
    names = (corrected, RunFile.CONFIRMED, RunFile.DROPPED, RunFile.CHANGES)
    return tuple(run.path / name for name in names)


def _is_parquet(source: RunSource) -> bool:
    if source.is_listing:
        return False
    if source.shards:
        return are_parquet(source)
    if is_arrow_folder(source.data):
        return True  # the nearest form that is one file
    try:
        with source.data.open("rb") as stream:
            return stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except FileNotFoundError:
        raise DataError(
            f"there is no {source.data}, which the run was trained on; was it moved?"
        ) from None


def _is_json_lines(source: RunSource) -> bool:
    return not source.is_listing and shard_form(source).endswith(JSON_LINES)


def _is_excel(source: RunSource) -> bool:
    return not source.is_listing and shard_form(source).endswith(EXCEL)


def correct(
    source: RunSource,
    corrections: Corrections,
    out: IO[bytes],
    *,
    paths: Callable[[], Mapping[str, int]],
) -> Corrected:
    """Write the corrected data in their own form; `paths` names the images that change."""
    if source.is_listing:
        return correct_listing(source, corrections, out, paths=paths())
    if source.shards:
        return correct_shards(source, corrections, out)
    if _is_json_lines(source):
        return correct_json_lines(source, corrections, out)
    if _is_excel(source):
        return correct_excel(source, corrections, out)
    if is_arrow_folder(source.data):
        return correct_arrow_folder(source, corrections, out)
    return (correct_parquet if _is_parquet(source) else correct_delimited)(source, corrections, out)


def _paths(suspects: Suspects, changed: list[int]) -> dict[str, int]:
    """The paths of changed rows, which only suspects have."""
    places = {suspects.position(index): index for index in changed}
    if None in places:
        raise DataError(
            f"row {places[None]} was decided on, but is no longer among the suspects, so its image is "
            "unknown; undo that decision, or train again to list it"
        )
    return {text: places[place] for place, text in suspects.examples() if place in places}


def _given(run: TrainedRun, suspects: Suspects, standing: Mapping[int, Decision]) -> dict[int, str]:
    """The given label of every row decided on, in the order of the rows."""
    given = {
        index: suspects.given.name(position) or ""
        for index in standing
        if (position := suspects.position(index)) is not None
    }
    lacking = set(standing) - set(given)
    if lacking:  # suspects of an earlier audit
        with arrow("parquet").ParquetFile(run.path / RunFile.AUDIT) as file:
            for batch in file.iter_batches(columns=["index", "given_label"]):
                for index, label in zip(*(column.to_pylist() for column in batch), strict=True):
                    if index in lacking:
                        given[index] = label or ""
    return {index: given[index] for index in sorted(given)}


def _confirmed(rows: Mapping[int, str], corrections: Corrections) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("index", "label"))
    writer.writerows((index, corrections.safe(label)) for index, label in rows.items())
    return stream.getvalue()


def _changes(corrections: Corrections) -> Iterator[str]:
    yield f"# {len(corrections.labels)} relabelled, {len(corrections.dropped)} dropped\n"
    for index in corrections.changed:
        new = corrections.labels.get(index)
        to = "(dropped)" if new is None else visible_text.label(new)
        yield f"{index}: {visible_text.label(corrections.given[index])} -> {to}\n"
