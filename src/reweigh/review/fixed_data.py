"""The folder of `reweigh fix`: corrected data, what was done and why, and what it is worth.

All files are made in a folder beside it, and moved when they are whole; fix.json comes last. The user's
own files are only read.
"""

import csv
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..exchange import RowContent
from ..files import sync_folder, unwritable, whole_file
from ..runs import FixSummary, LabelFix, RunFile, TrainedRun, write
from ..text import harmless
from .corrections import Corrections
from .exports import correct, exported_files

COLUMNS = ("index", "given_label", "action", "new_label", "p_wrong", "p_suggested", "why")


def write_fixed(
    run: TrainedRun,
    fixes: Sequence[LabelFix],
    summary: FixSummary,
    out: Path,
    *,
    exact: bool = False,
) -> FixSummary:
    """Write the folder `out`, which is new, empty, or one that this made before."""
    fixes = sorted(fixes, key=lambda each: each.index)
    corrections = Corrections(
        given={each.index: each.given for each in fixes},
        labels={each.index: each.label for each in fixes if each.label is not None},
        dropped=frozenset(each.index for each in fixes if each.label is None),
        safe=str if exact else harmless,
    )
    try:
        fresh = Path(tempfile.mkdtemp(prefix=f".writing-{out.name}-", dir=out.absolute().parent))
    except OSError as error:
        raise unwritable(out, error) from error
    try:
        corrected = fresh / exported_files(run)[0].name
        with whole_file(corrected) as stream:
            correct(run.source, corrections, stream, paths=lambda: _paths(run, fixes))
        _write_list(fresh / RunFile.FIXES, COLUMNS, [_row(each) for each in fixes])
        aside = [(index,) for index in sorted(corrections.dropped)]
        _write_list(fresh / RunFile.SET_ASIDE, ("index",), aside)
        done = replace(summary, corrected=corrected.name)
        write(fresh / RunFile.FIX, done)
        _move(fresh, out)
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return done


def _move(fresh: Path, out: Path) -> None:
    """One rename for a new folder; into an old one file by file, the old fix.json gone first."""
    if out.exists() and any(out.iterdir()):
        (out / RunFile.FIX).unlink(missing_ok=True)
        names = sorted(path.name for path in fresh.iterdir() if path.name != RunFile.FIX)
        for old in {RunFile.CORRECTED_TEXT, RunFile.CORRECTED_PARQUET} - set(names):
            (out / old).unlink(missing_ok=True)  # of data in another form
        for name in (*names, RunFile.FIX):
            os.replace(fresh / name, out / name)
        sync_folder(out)
        return
    if out.exists():
        out.rmdir()
    fresh.chmod(0o755)
    os.replace(fresh, out)
    sync_folder(out.absolute().parent)


def _paths(run: TrainedRun, fixes: Sequence[LabelFix]) -> dict[str, int]:
    """The paths of images that change."""
    index = np.array([each.index for each in fixes], dtype=np.int64)
    rows = RowContent(run.source).at(index, [each.given for each in fixes])
    return dict(zip(rows.column("path").to_pylist(), index.tolist(), strict=True))


def _row(each: LabelFix) -> tuple[object, ...]:
    action = "set aside" if each.label is None else "relabel"
    numbers = (None if p is None else f"{p:.4f}" for p in (each.p_wrong, each.p_suggested))
    words = (harmless(text) for text in (each.given, action, each.label or ""))
    return (each.index, *words, *numbers, harmless(each.why))


def _write_list(path: Path, header: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
