"""From the user's files to a task that can be trained on.

inspect_files -> split_rows -> encode -> leave out unreadable and repeated rows
-> hold some clean rows out for judging -> data.Task
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..data import Part, Task
from ..encoders import robust_scale
from ..errors import DataError
from ..runs import RunFile
from . import encoder_file
from .encoded_rows import EncodedRows, EncodingProgress, encode
from .inspection import Inspected, Say, inspect_files
from .labelled_rows import LabelledRows
from .options import Options
from .row_split import RowSplit, hold_out, repeated, split_rows

FARTHEST = 10.0
"""Scaled targets of a regression are cut off here: one absurd value must not rule the training."""
FEWEST_VALIDATION = 10
STOPPING = 0.2
USUAL = 0.9
"""Share of different rows in the data, above which two equal ones are one case met twice."""
SOURCES = {
    "train": "data", "own_clean": "data", "clean": "clean", "test": "test",
    "validation": "validation",
}  # fmt: skip
"""Which file the rows of each field of a `RowSplit` are in."""

EncodedFiles = Mapping[str, EncodedRows]


@dataclass(frozen=True)
class TargetScale:
    """Labels as targets. Classes stay as they are; numbers become (y - centre) / scale."""

    classes: bool
    centre: float = 0.0
    scale: float = 1.0

    def targets(self, labels: npt.NDArray[np.float64], *, farthest: float = FARTHEST) -> Tensor:
        """[n] classes, or scaled numbers from -farthest to farthest."""
        if self.classes:
            return torch.from_numpy(labels.astype(np.int64))
        scaled = np.clip((labels - self.centre) / self.scale, -farthest, farthest)
        return torch.from_numpy(scaled.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Prepared:
    """What training, audit and prediction need to know.

    train_rows    [n] the index of each train example in the user's data
    numbers       [n] the target of each as it was given, in a regression; else empty
    clean_rows    of each clean example, held out ones included: its file ("clean", "data") and rows
    checked_rows  of each clean example, in that order: its row in the data, if it is there, too; else -1
    checked_given the label it has there; -1 where it is not
    judged_on     "test", "holdout", or "" where nothing was kept for judging
    validated     whether the rows of --validation, `task.hyper_validation`, choose the candidate
    unreadable    files of the data that could not be decoded, by index
    release       frees the encoded rows in memory; they are read again when needed
    """

    task: Task
    inspected: Inspected
    classes: tuple[str, ...]
    train_rows: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    clean_rows: tuple[tuple[str, npt.NDArray[np.int64]], ...]
    checked_rows: npt.NDArray[np.int64]
    checked_given: npt.NDArray[np.int64]
    judged_on: str
    validated: bool
    target_scale: TargetScale
    unreadable: npt.NDArray[np.int64]
    release: Callable[[], None]


def prepare(options: Options, folder: Path, *, say: Say, progress: EncodingProgress) -> Prepared:
    """Read, check and encode the data into `folder`/encoded; `progress(what, done, total)`."""
    inspected = inspect_files(options, say=say)
    split = split_rows(inspected, options, say=say)
    encoder_file.save(folder, inspected.encoder)
    (folder / RunFile.ENCODED).mkdir(exist_ok=True)
    files = {
        role: encode(source, inspected.encoder, folder / RunFile.ENCODED, role, progress=progress)
        for role, source in inspected.sources.items()
    }
    inspected = inspected.after_encoding()
    split = _without_unreadable(split, files, say)
    checked_rows, checked_given = _checked_in_data(split, files)
    split = _without_repeated(split, files, say)
    if len(split.train) < 10:
        raise DataError(
            f"{len(split.train)} training rows are left; expected 10 or more that are not clean rows"
        )
    scale = _target_scale(split, say)
    clean, held_out = _clean_parts(options, split, files, scale, say)
    train = _part(files["data"].inputs, split.train, scale.targets(split.train.labels))
    test, judged_on = held_out, "holdout" if len(held_out) else ""
    if len(split.test):
        targets = scale.targets(split.test.labels, farthest=np.inf)
        test, judged_on = _part(files["test"].inputs, split.test, targets), "test"
    validation = Part(train.inputs, train.ids[:0], train.targets[:0], train.truth[:0])
    if len(split.validation):
        targets = scale.targets(split.validation.labels, farthest=np.inf)
        validation = _part(files["validation"].inputs, split.validation, targets)
    elif options.early_stop:
        clean, validation = _for_stopping(clean, len(split.classes), options.seed, say)
    peak = 255 if inspected.kind == "images" else 1
    return Prepared(
        task=Task(train, validation, clean, test if judged_on else clean, split.classes, peak),
        inspected=inspected,
        classes=split.classes,
        train_rows=split.train.rows,
        numbers=split.train.labels[: 0 if split.classes else None],
        clean_rows=(("clean", split.clean.rows), ("data", split.own_clean.rows)),
        checked_rows=checked_rows,
        checked_given=checked_given,
        judged_on=judged_on,
        validated=len(split.validation) > 0,
        target_scale=scale,
        unreadable=np.flatnonzero(~files["data"].readable),
        release=files["data"].release,
    )


def _for_stopping(clean: Part, classes: int, seed: int, say: Say) -> tuple[Part, Part]:
    """Clean rows that guide the training, and a fifth that tells when to end it."""
    rows = LabelledRows(np.arange(len(clean)), clean.targets.double().numpy())
    held = hold_out(rows, STOPPING, classes=classes, seed=seed + 1)
    if not held.any():
        raise DataError(
            f"--early-stop holds a fifth of the clean rows out, and {len(clean)} are too few for that; "
            "expected five or more a class, or rows of their own: --validation FILE"
        )
    say(f"{int(held.sum()):,} of {len(clean):,} clean rows tell when to stop, and guide nothing")
    guide, stop = (clean.take(torch.from_numpy(np.flatnonzero(each))) for each in (~held, held))
    return guide, stop


def _without_unreadable(split: RowSplit, files: EncodedFiles, say: Say) -> RowSplit:
    for name, file in SOURCES.items():
        rows: LabelledRows = getattr(split, name)
        if len(rows):
            readable = files[file].readable[rows.rows]
            if gone := int(np.sum(~readable)):
                say(f"{file}: {gone:,} files cannot be read and are left out")
            change: Any = {name: rows.where(readable)}
            split = replace(split, **change)
    return split


def _without_repeated(split: RowSplit, files: EncodedFiles, say: Say) -> RowSplit:
    """No clean row in the validation, none of both in the test, none of all in training.

    Clean rows cut out of the data itself are no repetition of it.
    """

    def digests(*names: str) -> npt.NDArray[np.uint64]:
        known = [name for name in names if SOURCES[name] in files]
        each = [files[SOURCES[name]].digests[getattr(split, name).rows] for name in known]
        return np.concatenate([np.empty(0, np.uint64), *each])

    _check_contradictions(split, digests("clean", "own_clean"), digests("train"))
    twice = repeated(digests("validation"), digests("clean", "own_clean"))
    if twice.any():
        say(f"{int(twice.sum()):,} validation rows are clean rows too: left out of the validation")
        split = replace(split, validation=split.validation.where(~twice))
    if len(split.validation) + int(twice.sum()) > 0 and len(split.validation) < FEWEST_VALIDATION:
        raise DataError(
            f"{len(split.validation)} validation rows are left; expected {FEWEST_VALIDATION} or more "
            "that are no clean rows"
        )
    twice = repeated(digests("test"), digests("clean", "own_clean", "validation"))
    if twice.any():
        say(
            f"{int(twice.sum()):,} test rows are clean or validation rows too: left out of the test"
        )
        split = replace(split, test=split.test.where(~twice))
    twice = repeated(digests("train"), digests("clean", "test", "validation"))
    if twice.any():
        say(f"{int(twice.sum()):,} training rows are clean or test rows too: left out of training")
        split = replace(split, train=split.train.where(~twice))
    return split


def _checked_in_data(
    split: RowSplit, files: EncodedFiles
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where checked rows are in the data, and the labels they have there; -1 where nobody can tell.

    Rows that the user marked or confirmed in the data itself have no other label there, or were
    chosen for being suspicious.
    """
    rows = np.full(len(split.clean) + len(split.own_clean), -1)
    given = rows.copy()
    if not split.classes or not len(split.clean):
        return rows, given
    digests = files["data"].digests[split.train.rows]
    if len(np.unique(digests)) < USUAL * len(digests):
        return rows, given
    place_of = {digest: place for place, digest in enumerate(digests.tolist())}
    for checked, digest in enumerate(files["clean"].digests[split.clean.rows].tolist()):
        if (place := place_of.get(digest)) is not None:
            rows[checked] = split.train.rows[place]
            given[checked] = int(split.train.labels[place])
    return rows, given


def _check_contradictions(
    split: RowSplit, clean: npt.NDArray[np.uint64], train: npt.NDArray[np.uint64]
) -> None:
    """Refuse a checked row that is there twice with different labels.

    Not in a regression, and not in tables with few columns, where many rows are equal by chance.
    """
    if not split.classes or len(np.unique(train)) < USUAL * len(train):
        return
    labels = np.concatenate([split.clean.labels, split.own_clean.labels]).astype(int)
    rows = np.concatenate([split.clean.rows, split.own_clean.rows])
    first: dict[int, int] = {}
    for place, digest in enumerate(clean.tolist()):
        before = first.setdefault(digest, place)
        if labels[before] != labels[place]:
            one, other = (split.classes[labels[k]] for k in (before, place))
            raise DataError(
                f"a checked row is there twice, with the labels {one!r} and {other!r} (rows "
                f"{rows[before]} and {rows[place]} of their files, from 0); expected one label: "
                "remove the wrong one"
            )


def _target_scale(split: RowSplit, say: Say) -> TargetScale:
    if split.classes:
        return TargetScale(classes=True)
    labels = split.train.labels
    centre, scale = robust_scale(labels)
    if far := int(np.sum(np.abs(labels - centre) > FARTHEST * scale)):
        say(f"{far:,} targets are farther than {FARTHEST:g} scales from the median: cut off there")
    return TargetScale(classes=False, centre=centre, scale=scale)


def _clean_parts(
    options: Options, split: RowSplit, files: EncodedFiles, scale: TargetScale, say: Say
) -> tuple[Part, Part]:
    """The clean rows that guide the training, and those held out for judging.

    They are few and may come from two files: they get inputs of their own, in memory.
    """
    sources = [
        (files[file].inputs, rows)
        for file, rows in (("clean", split.clean), ("data", split.own_clean))
        if len(rows)
    ]
    if not sources:
        raise DataError("no clean row is left; expected a few rows whose labels are checked")
    inputs = torch.cat([each[torch.from_numpy(rows.rows)] for each, rows in sources])
    labels = np.concatenate([rows.labels for _, rows in sources])
    clean = LabelledRows(np.arange(len(inputs)), labels)
    held = hold_out(clean, options.held_out, classes=len(split.classes), seed=options.seed)
    if options.held_out and not held.any():
        say("there are too few clean rows to hold any out; give --test for an honest figure")
    if held.any() and not len(split.test):
        say(f"{int(held.sum()):,} of {len(clean):,} clean rows are held out for judging")
    guide, judge = (
        _part(inputs, rows, scale.targets(rows.labels))
        for rows in (clean.where(~held), clean.where(held))
    )
    return guide, judge


def _part(inputs: Tensor, rows: LabelledRows, targets: Tensor) -> Part:
    return Part(inputs, torch.from_numpy(rows.rows), targets, targets)
