"""Where `reweigh audit` and `reweigh predict` may write: never onto a file of the user's.

refused always       the data, clean and test files, and lists of rows, of the run; its own files; the
                     rows that are predicted for
refused, or --force  any other file that is there already
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ..errors import DataError, ReweighError
from ..exchange import ENDINGS
from ..runs import RunFile, TrainedRun, read
from ..tables import is_shards, shard_files
from .options import Options

_OWN = {
    name
    for key, name in vars(RunFile).items()
    if not key.startswith("_") and name != RunFile.AUDIT_LIST
}


def check_output(
    out: Path,
    run: TrainedRun,
    *,
    endings: tuple[str, ...] = ENDINGS,
    beside: tuple[Path, ...] = (),
    reads: Path | None = None,
    force: bool,
) -> None:
    """Refuse a name that cannot or must not be written, before any work.

    endings    that the name may have; none for a folder, which must be new or empty
    beside     other files that will be written
    reads      is read meanwhile
    """
    if endings and out.suffix.lower() not in endings:
        raise DataError(f"{out} has an unknown ending; expected {' or '.join(endings)}")
    if not endings:
        _check_folder(out)
        return
    for file in (out, *beside):
        _check_file(file, run, reads, force=force)


def _check_folder(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise DataError(f"{out} is there already; choose the name of a new folder")
    if not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent}; make it, or write somewhere else")


def check_fix_folder(out: Path, run: TrainedRun, *, force: bool) -> None:
    """Refuse a folder that `reweigh fix` must not write into: one with files, unless it made them."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; expected the name of a new folder")
    if not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent}; make it, or write somewhere else")
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / RunFile.FIX).exists():
        raise DataError(
            f"{out} is not empty, and not from `reweigh fix`; choose the name of a new folder"
        )
    if not force:
        raise DataError(f"{out} is there already; choose another name, or replace it with --force")
    for role, path in _files(run, None):
        if _same(path.parent, out):
            raise DataError(f"{path}, {role}, is in {out}; choose the name of a new folder")


def _check_file(out: Path, run: TrainedRun, reads: Path | None, *, force: bool) -> None:
    if out.is_dir():
        raise DataError(f"{out} is a folder; expected the name of a file in it")
    if not out.parent.is_dir():
        raise DataError(f"there is no folder {out.parent}; make it, or write somewhere else")
    for role, path in _files(run, reads):
        if _same(out, path):
            raise DataError(f"{out} is {role}; writing would replace it: choose another name")
    if _same(out.parent, run.path) and out.name in _OWN:
        raise DataError(f"{out} is a file of the run itself; choose another name")
    is_ours = _same(out, run.path / RunFile.AUDIT_LIST)
    if out.exists() and not is_ours and not force:
        raise DataError(f"{out} is there already; choose another name, or replace it with --force")


def _files(run: TrainedRun, reads: Path | None) -> Iterator[tuple[str, Path]]:
    """What was read, in words, and its path."""
    for file in () if reads is None else _each(reads):
        yield "the file to predict for", file
    for file in _each(run.source.data):
        yield "the data of the run", file
    for file in () if run.source.clean is None else _each(run.source.clean):
        yield "the clean file of the run", file
    try:
        options = read(run.path / RunFile.OPTIONS, Options)
    except ReweighError:  # of an older version, or gone
        return
    for field in fields(options):
        value = getattr(options, field.name)
        for path in value if isinstance(value, tuple) else (value,):
            for file in _each(path) if isinstance(path, Path) else ():
                yield f"a file of the run (--{field.name.replace('_', '-')})", file


def _each(path: Path) -> tuple[Path, ...]:
    """A path, and the shards that it stands for."""
    try:
        return (path, *(shard_files(path) if is_shards(path) else ()))
    except (DataError, OSError):  # they have changed since
        return (path,)


def _same(one: Path, other: Path) -> bool:
    """Whether two names are one file, through links of any kind."""
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return one.absolute() == other.absolute()
