"""The user's files, looked at once: what they are, their labels, and a pre-processing fitted.

parts = gather(options, say=print)     # data, clean and test; the encoder; the task
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..encoders import (
    TEXT_SAMPLE_ROWS,
    HashedTextEncoder,
    ImageEncoder,
    LanguageModelEncoder,
    TableEncoder,
    fit_hashed_texts,
    fit_images,
    fit_table,
    open_language_model,
)
from ..errors import DataError, SettingError
from ..tables import (
    SAMPLE_ROWS,
    Condition,
    GivenLabels,
    ImageFolder,
    LabelScan,
    Table,
    decide_task,
    is_table,
    open_image_folder,
    open_table,
    parse_condition,
    scan_table,
)
from .options import Options

Say: TypeAlias = Callable[[str], None]
Encoder: TypeAlias = TableEncoder | HashedTextEncoder | LanguageModelEncoder | ImageEncoder


@dataclass(frozen=True, eq=False)
class Source:
    """One file or folder: its labels, and which of its rows are marked as checked."""

    files: Table | ImageFolder
    targets: GivenLabels
    marked: npt.NDArray[np.bool_]

    @property
    def path(self) -> Path:
        """As given."""
        return self.files.path

    def __len__(self) -> int:
        return len(self.marked)


@dataclass(frozen=True, eq=False)
class Gathered:
    """sources by role (data, and clean and test where given); task: "classes" or "regression"."""

    kind: str
    task: str
    target: str
    sources: Mapping[str, Source]
    encoder: Encoder

    def without_labels(self) -> Gathered:
        """The same, holding no memory for labels that have found their place."""
        nothing = GivenLabels((), None, None)
        light = {role: replace(source, targets=nothing) for role, source in self.sources.items()}
        return replace(self, sources=light)


def gather(options: Options, *, say: Say) -> Gathered:
    """Look at all files, and say what was guessed and left out."""
    if options.data.is_dir():
        return _folders(options, say)
    return _tables(options, say)


def _tables(options: Options, say: Say) -> Gathered:
    marking = parse_condition(options.clean_where) if options.clean_where else None
    tables = {
        role: open_table(path, encoding=options.encoding)
        for role in ("data", "clean", "test")
        if (path := getattr(options, role)) is not None
    }
    target = _target(options, tables["data"])
    columns = _columns(options, tables["data"], target, marking)
    sources: dict[str, Source] = {}
    sample: Any = None
    for role, table in tables.items():
        table.require(target)
        looked = scan_table(
            table,
            target,
            marking=marking if role == "data" else None,
            columns=columns if role == "data" else (),
            capacity=TEXT_SAMPLE_ROWS if options.text else SAMPLE_ROWS,
            seed=options.seed,
        )
        sources[role] = Source(table, looked.labels, looked.marked)
        if role == "data":
            sample = looked
    if sources["data"].targets.missing.all():
        raise DataError(f"{options.data}: every label in column {target!r} is missing")
    if not sample.sample.num_rows:
        raise DataError(f"{options.data}: no labelled row is left to train on")
    task = decide_task(options.task, sources["data"].targets)
    if options.text is not None:
        encoder: TableEncoder | HashedTextEncoder | LanguageModelEncoder = (
            open_language_model(options.text, options.encoder)
            if options.encoder is not None
            else fit_hashed_texts(sample.sample, options.text)
        )
        kind = "text"
    else:
        encoder, notices = fit_table(sample.sample, sample.sample_rows, columns)
        kind = "table"
        for notice in notices:
            say(notice)
    for table in tables.values():
        table.require(*encoder.needs)
    return Gathered(kind, task, target, sources, encoder)


def _target(options: Options, table: Table) -> str:
    if options.target is None:
        raise SettingError(
            f"which column has the labels? give --target; {table.path} has: "
            + ", ".join(table.columns)
        )
    table.require(options.target)
    return options.target


def _columns(
    options: Options, table: Table, target: str, marking: Condition | None
) -> tuple[str, ...]:
    """The columns to learn from."""
    table.require(*options.ignore)
    if marking is not None:
        table.require(marking.column)
        if marking.column == target:
            raise SettingError(
                "--clean-where names the target; expected a column that says checked"
            )
    if options.text is not None:
        table.require(options.text)
        if options.text == target:
            raise SettingError("--text and --target are the same column; expected two")
        return (options.text,)
    out = {target, *options.ignore, *([marking.column] if marking else [])}
    columns = tuple(name for name in table.columns if name not in out)
    if not columns:
        raise DataError(
            f"{table.path} has no column to learn from besides {', '.join(sorted(out))}"
        )
    return columns


def _folders(options: Options, say: Say) -> Gathered:
    for name in ("text", "clean_where"):
        if getattr(options, name) is not None:
            raise SettingError(
                f"--{name.replace('_', '-')} is for tables, and {options.data} is a folder of images"
            )
    sources = {}
    for role in ("data", "clean", "test"):
        path = getattr(options, role)
        if path is not None:
            if is_table(path):
                raise DataError(f"{path} is a table and {options.data} a folder; expected a folder")
            folder = open_image_folder(path)
            gathered = LabelScan()
            gathered.add_names(folder.names)
            sources[role] = Source(folder, gathered.finish(), np.zeros(len(folder), dtype=bool))
    data = sources["data"].files
    assert isinstance(data, ImageFolder), "opened as one"
    encoder = fit_images(data, size=options.image_size)
    colours = "grey" if encoder.channels == 1 else "colour"
    say(f"images are resized to {encoder.size}x{encoder.size}, {colours}")
    return Gathered("images", "classes", "folder", sources, encoder)
