"""Data sets on disk, as this library keeps them.

    ROOT/NAME/train_images.npy train_labels.npy test_images.npy test_labels.npy manifest.json
    ROOT/cifar10n/true_labels.npy worst_labels.npy ... manifest.json      labels for another set's images

Arrays are plain .npy, mapped into memory rather than read. `manifest.json` is written last and has
the digest of each array, sha256("uint8 60000x1x28x28\\n" + bytes in C order): every load compares
it, so that a truncated or altered file is named and refused. A folder appears under its name only
when it is complete, by a rename. One process at a time writes, and only if there is enough room.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...files import locked
from .decoders import Bytes
from .layouts import ARRAY_NAMES, LABEL_NAMES, Arrays

MANIFEST = "manifest.json"
MARK = "making-"
"""In the name of every temporary folder, so that leftovers can be told from data sets."""


@dataclass(frozen=True)
class Manifest:
    """What a stored data set is and where it came from."""

    name: str
    origin: str
    form: str
    digests: dict[str, str]
    subset: bool = False


def data_root(root: str | Path | None = None) -> Path:
    """Where data sets are kept: `root`, else $REWEIGH_DATA, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get("REWEIGH_DATA"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "reweigh" / "data"


def digest(array: Bytes) -> str:
    """sha256 of type, shape and content."""
    head = f"{array.dtype} {'x'.join(map(str, array.shape))}\n"
    content = hashlib.sha256(head.encode())
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def digests(arrays: Arrays) -> dict[str, str]:
    """The digest of each array."""
    return {name: digest(array) for name, array in arrays.items()}


def is_stored(root: Path, name: str) -> bool:
    """Whether a folder of that name is there; `read_stored` tells whether it is sound."""
    return (root / name / MANIFEST).is_file()


def place(root: Path, arrays: Arrays, manifest: Manifest) -> None:
    """Write a data set beside its place, then move it there in one step."""
    target = root / manifest.name
    with workspace(root, manifest.name) as beside:
        fresh = beside / "new"
        fresh.mkdir()
        for name, array in arrays.items():
            with (fresh / f"{name}.npy").open("wb") as file:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        text = json.dumps({"version": 1, **asdict(manifest)}, indent=2)
        (fresh / MANIFEST).write_text(text + "\n", encoding="utf-8")
        fresh.chmod(0o755)  # a shared folder must be readable by others
        # A folder cannot replace another: an old one steps aside first.
        if target.exists():
            os.replace(target, beside / "old")
        os.replace(fresh, target)


def read_manifest(root: Path, name: str) -> Manifest:
    """The manifest of a stored data set."""
    path = root / name / MANIFEST
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = fields.pop("version")
        manifest = Manifest(**fields)
        complete = set(manifest.digests) in ({*ARRAY_NAMES}, {*LABEL_NAMES})
        sound = version == 1 and manifest.name == name and complete
    except FileNotFoundError:
        raise DataError(f"{name} is not in {root}; run: reweigh data fetch {name}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, name, "it cannot be read") from error
    if not sound:
        raise _damaged(path, name, "it does not describe this data set")
    return manifest


def read_stored(root: Path, name: str, *, check: bool = True) -> tuple[Arrays, Manifest]:
    """The arrays, mapped copy-on-write (changes stay in memory), and their manifest.

    `check=False` skips the digests (0.2 s for CIFAR) for a set that was just verified.
    """
    manifest = read_manifest(root, name)
    arrays: Arrays = {}
    for array_name in manifest.digests:
        path = root / name / f"{array_name}.npy"
        try:
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except FileNotFoundError:
            raise _damaged(path, name, "it is missing") from None
        except (ValueError, EOFError, OSError) as error:
            raise _damaged(path, name, "it is truncated") from error
        if array.dtype != np.uint8 or (check and digest(array) != manifest.digests[array_name]):
            raise _damaged(path, name, "its content was altered")
        arrays[array_name] = array
    return arrays, manifest


def _damaged(path: Path, name: str, how: str) -> DataError:
    return DataError(f"{path}: {how}; run: reweigh data fetch {name}")


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """One process at a time fetches `name`; the others wait and find it there.

    So what a killed process left of it can be swept away.
    """
    with locked(folder / f".{name}.lock"):
        for stale in folder.glob(f".{name}-{MARK}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield


@contextmanager
def workspace(folder: Path, name: str) -> Iterator[Path]:
    """A temporary folder inside `folder`, removed at the end whatever happens."""
    with tempfile.TemporaryDirectory(
        prefix=f".{name}-{MARK}", dir=folder, ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@contextmanager
def enough_room(folder: Path, need: int) -> Iterator[None]:
    """Refuse at once when the disk is too full, and in one line when it fills up meanwhile."""
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
