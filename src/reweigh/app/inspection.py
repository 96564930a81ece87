"""The user's files, looked at once: what they are, their labels, and an encoder fitted to them.

inspected = inspect_files(options, say=print)     # data, clean and test; the encoder; the task
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .. import encoders, tables
from ..errors import DataError, SettingError
from .image_backbone import backbone_pixels
from .kept_table import KeptTable
from .options import Options, flag

Say: TypeAlias = Callable[[str], None]
ROLES = ("data", "clean", "validation", "test")
TextEncoder: TypeAlias = encoders.HashedTextEncoder | encoders.LanguageModelEncoder
Encoder: TypeAlias = encoders.TableEncoder | TextEncoder | encoders.ImageEncoder


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file or folder: its labels, and which of its rows are marked as checked."""

    files: tables.Table | tables.ImageFolder
    labels: tables.GivenLabels
    marked: npt.NDArray[np.bool_]

    @property
    def path(self) -> Path:
        """As given."""
        return self.files.path

    def __len__(self) -> int:
        return len(self.marked)


@dataclass(frozen=True, eq=False)
class Inspected:
    """sources by role (data, and clean, validation and test where given); task: "classes" or "regression".

    notes    what was guessed about the form of the files
    """

    kind: str
    task: str
    target: str
    sources: Mapping[str, SourceFile]
    encoder: Encoder
    notes: tuple[str, ...] = ()

    def after_encoding(self) -> Inspected:
        """What is needed once all rows are encoded: rows that will be shown, without labels."""
        nothing = tables.GivenLabels((), None, None)
        sources = {
            role: replace(source, labels=nothing)
            for role, source in self.sources.items()
            if role != "test" or self.kind == "text"
        }
        return replace(self, sources=sources)


def inspect_files(options: Options, *, say: Say) -> Inspected:
    """Look at all files, and say what was guessed and left out."""
    images = options.data.is_dir() or tables.is_image_archive(options.data)
    if images and not tables.is_table(options.data):
        return _folders(options, say)
    return _tables(options, say)


def _tables(options: Options, say: Say) -> Inspected:
    marking = tables.parse_condition(options.clean_where) if options.clean_where else None
    opened = {
        role: tables.open_table(path, encoding=options.encoding)
        for role in ROLES
        if (path := getattr(options, role)) is not None
    }
    data = opened["data"]
    opened = {role: table.with_commas(data.commas) for role, table in opened.items()}
    notes = [f"{role}: {note}" for role, table in opened.items() for note in table.notes]
    for note in notes:
        say(note)
    target = _target(options, data)
    if (image := _image_column(options, data, target)) is not None:
        return _image_tables(options, opened, target, image, marking, say)
    if options.encoder is not None and options.text is None:
        raise SettingError(
            "--encoder is for texts and images; of a table, give the column of its texts: --text COLUMN"
        )
    columns = _columns(options, data, target, marking)
    # The cells of suspects are shown in full; of texts only the text is.
    keep = (target, *(columns if options.text is not None else data.columns))
    if marking is not None:
        keep = (*keep, marking.column)
    opened = {role: KeptTable.of(table, keep) for role, table in opened.items()}
    scans = {}
    for role, table in opened.items():
        table.require(target)
        scans[role] = tables.scan_table(
            table,
            target,
            marking=marking if role == "data" else None,
            columns=columns if role == "data" else (),
            capacity=encoders.TEXT_SAMPLE_ROWS if options.text else tables.SAMPLE_ROWS,
            seed=options.seed,
        )
    labels = scans["data"].labels
    _check_some(options, target, labels)
    if not scans["data"].sample.num_rows:
        raise DataError(f"{options.data}: no labelled row is left to train on")
    task = tables.decide_task(options.task, labels)
    _check_labels(options, target, task, scans, say)
    encoder = _encoder(options, scans["data"], columns, say)
    for table in opened.values():
        table.require(*encoder.needs)
    sources = {
        role: SourceFile(opened[role], scan.labels, scan.marked) for role, scan in scans.items()
    }
    kind = "table" if options.text is None else "text"
    return Inspected(kind, task, target, sources, encoder, tuple(notes))


def _encoder(
    options: Options, scan: tables.Scan, columns: tuple[str, ...], say: Say
) -> encoders.TableEncoder | TextEncoder:
    """The encoder for a table or its texts, fitted to the sample of a scan."""
    if options.text is None:
        assert scan.sample_rows is not None, "the scan took a sample"
        encoder, notices = encoders.fit_table(scan.sample, scan.sample_rows, columns)
        for notice in notices:
            say(notice)
        return encoder
    if what := tables.unreadable(scan.sample.column(options.text)):
        raise DataError(f"column {options.text!r} {what}; expected texts")
    if options.encoder is not None:
        return encoders.open_language_model(options.text, options.encoder)
    return encoders.fit_hashed_texts(scan.sample, options.text)


def _check_some(options: Options, target: str, labels: tables.GivenLabels) -> None:
    if labels.missing.all():
        raise DataError(f"{options.data}: every label in column {target!r} is missing")


def _check_labels(
    options: Options, target: str, task: str, scans: Mapping[str, tables.Scan], say: Say
) -> None:
    """Labels that a reader could take for something else: said, or refused."""
    if task == "regression":
        for role, scan in scans.items():
            if scan.infinite:
                raise DataError(
                    f"{getattr(options, role)}: {scan.infinite:,} labels in column {target!r} are "
                    "infinite; expected numbers: mend or remove these rows"
                )
    elif doubtful := [name for name in scans["data"].labels.names if name in tables.DOUBTFUL]:
        say(
            f"the label {doubtful[0]!r} is taken for a class; leave the cell empty if it is missing"
        )


def _target(options: Options, table: tables.Table) -> str:
    if options.target is None:
        raise SettingError(
            f"which column has the labels? give --target; {table.path} has: "
            + ", ".join(table.columns)
        )
    table.require(options.target)
    return options.target


def _columns(
    options: Options, table: tables.Table, target: str, marking: tables.Condition | None
) -> tuple[str, ...]:
    """The columns to learn from."""
    table.require(*options.ignore)
    for name, other in (("target", target), ("text", options.text)):
        if other is not None and other in options.ignore:
            raise SettingError(f"--ignore {other} leaves out the column that --{name} asks for")
    if options.weigh_sources and options.source is None:
        raise SettingError(
            "--weigh-sources needs to know the sources; expected --source COL with it"
        )
    if options.source is not None:
        table.require(options.source)
        if options.source in (target, options.text):
            raise SettingError(
                f"--source {options.source} is the target or the text; expected a column of its own"
            )
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
    others = (options.source, marking.column if marking else None)
    out = {target, *options.ignore, *(name for name in others if name is not None)}
    columns = tuple(name for name in table.columns if name not in out)
    if not columns:
        raise DataError(
            f"{table.path} has no column to learn from besides {', '.join(sorted(out))}"
        )
    return columns


def _folders(options: Options, say: Say) -> Inspected:
    for name in ("text", "image", "clean_where", "source"):
        if getattr(options, name) is not None:
            raise SettingError(f"{flag(name)} is for tables, and {options.data} has images")
    if options.weigh_sources:
        raise SettingError(f"--weigh-sources is for tables, and {options.data} has images")
    sources = {}
    for role in ROLES:
        path = getattr(options, role)
        if path is not None:
            if tables.is_table(path):
                raise DataError(f"{path} is a table and {options.data} a folder; expected a folder")
            folder = tables.open_images(path)
            if gone := len(folder.nameless):
                say(
                    f"{role}: {gone:,} files have names that are not UTF-8 and are left out, as "
                    f"{folder.nameless[0]}; rename them"
                )
            labels = tables.LabelScan()
            labels.add_names(folder.names)
            sources[role] = SourceFile(folder, labels.finish(), np.zeros(len(folder), dtype=bool))
    return Inspected("images", "classes", "folder", sources, _image_encoder(options, sources, say))


def _image_column(options: Options, table: tables.Table, target: str) -> str | None:
    """The column of images that is asked for, or the only one; None if there is none."""
    if options.text is not None:
        if options.image is not None:
            raise SettingError("--image and --text both say what to learn from; expected one")
        return None
    found = [c for c in tables.image_columns(table.path) if c not in (target, *options.ignore)]
    if options.image is None:
        if len(found) > 1:
            raise SettingError(
                f"{table.path} has images in {', '.join(found)}; which to learn from? give --image COLUMN"
            )
        return found[0] if found else None
    table.require(options.image)
    if options.image not in found:
        raise DataError(
            f"{table.path}: column {options.image!r} holds no images; expected bytes of PNG, JPEG or the like"
        )
    return options.image


def _image_tables(
    options: Options,
    opened: Mapping[str, tables.Table],
    target: str,
    image: str,
    marking: tables.Condition | None,
    say: Say,
) -> Inspected:
    """Tables whose rows are images; other columns than the labels are not learnt from."""
    if options.source is not None:
        raise SettingError(f"--source is for other tables, and {options.data} has images")
    sources, scans = {}, {}
    for role, table in opened.items():
        table.require(target, image)
        scan = tables.scan_table(table, target, marking=marking if role == "data" else None)
        folder = tables.open_image_cells(table.path, image)
        sources[role], scans[role] = SourceFile(folder, scan.labels, scan.marked), scan
    _check_some(options, target, scans["data"].labels)
    if tables.decide_task(options.task, sources["data"].labels) != "classes":
        raise DataError(
            f"the labels in column {target!r} are numbers, and images are learnt as classes only; "
            "give --task classes if they are a few classes"
        )
    _check_labels(options, target, "classes", scans, say)
    say(f"learns from the images in column {image!r}; --ignore {image} for the other columns")
    encoder = _image_encoder(options, sources, say)
    return Inspected("images", "classes", target, sources, encoder)


def _image_encoder(
    options: Options, sources: Mapping[str, SourceFile], say: Say
) -> encoders.ImageEncoder:
    data = sources["data"].files
    assert isinstance(data, tables.ImageFolder), "opened as one"
    if options.encoder is None:
        encoder = encoders.fit_images(data, size=options.image_size)
    else:
        if options.image_size is not None:
            raise SettingError(
                "--image-size is for the usual network; --encoder has a size of its own"
            )
        encoder = encoders.ImageEncoder(backbone_pixels(options.encoder).size, 3)
    colours = "grey" if encoder.channels == 1 else "colour"
    say(f"images are resized to {encoder.size}x{encoder.size}, {colours}")
    return encoder
